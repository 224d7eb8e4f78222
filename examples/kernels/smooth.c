// y[i] = x[i] + decay * y[i - 1], row by row; backwards where reverse is set.
#include <stdint.h>

void smooth(const double *x, double *y, int64_t rows, int64_t columns, double decay, int reverse) {
  for (int64_t row = 0; row < rows; ++row) {
    double last = 0.0;
    for (int64_t i = 0; i < columns; ++i) {
      int64_t at = row * columns + (reverse ? columns - 1 - i : i);
      last = x[at] + decay * last;
      y[at] = last;
    }
  }
}

// The same as smooth.c, as a handler that XLA calls: it works on the buffers of the program.
#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error Smooth(double decay, bool reverse, ffi::Buffer<ffi::F64> x,
                         ffi::ResultBuffer<ffi::F64> y) {
  auto sizes = x.dimensions();
  int64_t columns = sizes.back();
  int64_t rows = columns ? static_cast<int64_t>(x.element_count()) / columns : 0;
  for (int64_t row = 0; row < rows; ++row) {
    double last = 0.0;
    for (int64_t i = 0; i < columns; ++i) {
      int64_t at = row * columns + (reverse ? columns - 1 - i : i);
      last = x.typed_data()[at] + decay * last;
      y->typed_data()[at] = last;
    }
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(SmoothHandler, Smooth,
                              ffi::Ffi::Bind()
                                  .Attr<double>("decay")
                                  .Attr<bool>("reverse")
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>());

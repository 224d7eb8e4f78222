"""A loop of training, the same on one device and on several."""

import jax
import numpy as np
import optax


def train(gradient, params, batches, rate):
    """Trains by Adam.

    Args:
        gradient: takes the parameters and a batch, and returns the loss and its gradient.
        params: the parameters, a pytree, wherever they lie.
        batches: yields tuples of arrays.
        rate: the learning rate.

    Returns:
        The losses, the parameters, and the state of the optimiser.
    """
    optimiser = optax.adam(rate)
    state, update, losses = optimiser.init(params), jax.jit(optimiser.update), []
    for batch in batches:
        value, slopes = gradient(params, *batch)
        updates, state = update(slopes, state)
        params = optax.apply_updates(params, updates)
        losses.append(float(value))
    return np.array(losses), params, state

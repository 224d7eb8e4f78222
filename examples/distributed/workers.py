"""Workers: starts several processes of one program here, and joins those that a cluster starts."""

import os
import signal
import socket
import subprocess
import sys
import time

import jax

_NUMBER, _COUNT = "EXAMPLE_WORKER", "EXAMPLE_WORKERS"


def is_worker():
    """Tells whether `launch` has started this process."""
    return _NUMBER in os.environ


def join():
    """Joins the other processes of this program, where there are any; call it before anything else.

    Under Slurm, Kubernetes and Open MPI `jax.distributed.initialize` finds the others by itself.
    """
    if is_worker():
        count, number = int(os.environ[_COUNT]), int(os.environ[_NUMBER])
        jax.distributed.initialize(  # where they meet is in JAX_COORDINATOR_ADDRESS
            num_processes=count, process_id=number, cluster_detection_method="deactivate"
        )
        return
    try:
        jax.distributed.initialize()
    except ValueError as error:
        if "coordinator_address should be defined" not in str(error):
            raise  # else nothing here is a cluster: the program is one process


def launch(command, count, devices, limit, restarts=0):
    """Runs `count` workers, each with so many virtual devices of the CPU; returns the exit status.

    Where one dies all are ended, since those that wait for it would wait for long, and started
    again as often as `restarts` says. After `limit` seconds in all they are ended anyway.
    """
    end = time.monotonic() + limit
    for left in range(restarts, -1, -1):
        why = _run(command, count, devices, end)
        if why is None:
            return 0
        print(f"{why}.", file=sys.stderr, flush=True)
        if time.monotonic() >= end:
            break
        if left:
            print("All workers are started again.", file=sys.stderr, flush=True)
    return 1


def _run(command, count, devices, end):
    """Runs workers to their end; returns None, or what went wrong."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    shared = {
        **os.environ,
        _COUNT: str(count),
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
    }
    workers = []
    try:
        for number in range(count):
            workers.append(subprocess.Popen(command, env={**shared, _NUMBER: str(number)}))
        while True:
            codes = [worker.poll() for worker in workers]
            if all(code == 0 for code in codes):
                return None
            # one that was killed comes before those that fail because of it
            for code in sorted(code for code in codes if code):
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
                return f"Worker {codes.index(code)} of {count} has ended {how}; all are ended"
            if time.monotonic() >= end:
                return f"The {count} workers took too long, and are ended"
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.wait()

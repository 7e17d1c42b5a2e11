"""Kernels in a row as one graph of the CUDA driver, which starts them all by one call.

A graph is made of nodes, not by capturing a stream: nothing runs for it, the stream of the caller and the
work of other threads stay as they are, and each node is known, so that a later call tells the driver new
parameters of those alone whose addresses have changed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from .bindings import check, stream_handle
from .context import Context


class Graph:
    """See `mgb_cuda.device.LaunchGraph`.

    The nodes form a chain. That is the order of a stream, on which temporaries that share memory rely.

    Parameters
    ----------
    driver : module
        The bindings.
    context : Context
    starts : sequence of (handle, int, (int, int), int)
        The driver's handle of a kernel, the shared memory of a launch, the blocks of its grid and the threads
        of a block.
    tables : sequence of int
        For each launch the address of its list of parameters, which stays what it is; the driver copies the
        parameters now, and whenever `update` says so.

    Raises
    ------
    LaunchError
        The driver refuses.
    """

    def __init__(
        self,
        driver: Any,
        context: Context,
        starts: Sequence[tuple[Any, int, tuple[int, int], int]],
        tables: Sequence[int],
    ) -> None:
        context.ensure()
        self._driver, self._context = driver, context
        self._set, self._launch = driver.cuGraphExecKernelNodeSetParams, driver.cuGraphLaunch
        self._ask, self._success = driver.cuStreamIsCapturing, driver.CUresult.CUDA_SUCCESS
        self._idle = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        self._parameters = [self._node(s, table) for s, table in zip(starts, tables, strict=True)]
        graph = check(driver, driver.cuGraphCreate(0))
        weakref.finalize(self, driver.cuGraphDestroy, graph).atexit = False  # the driver may be gone by then
        self._nodes: list[Any] = []
        for parameters in self._parameters:
            before = self._nodes[-1:]
            added = driver.cuGraphAddKernelNode(graph, before, len(before), parameters)
            self._nodes.append(check(driver, added))
        self._ready = check(driver, driver.cuGraphInstantiate(graph, 0))
        weakref.finalize(self, driver.cuGraphExecDestroy, self._ready).atexit = False

    def update(self, numbers: Iterable[int]) -> None:
        self._context.ensure()
        for number in numbers:
            check(self._driver, self._set(self._ready, self._nodes[number], self._parameters[number]))

    def run(self, stream: int) -> bool:
        handle = stream_handle(stream)
        if stream:  # the default one cannot capture
            status, captures = self._ask(handle)
            if status is not self._success:
                status, captures = self._context.again((status, captures), partial(self._ask, handle))
            if status is not self._success or captures is not self._idle:
                return False  # what the caller captures is to have the kernels themselves
        (status,) = self._launch(self._ready, handle)
        if status is not self._success:
            check(self._driver, self._context.again((status,), partial(self._launch, self._ready, handle)))
        return True

    def _node(self, start: tuple[Any, int, tuple[int, int], int], table: int) -> Any:
        """Return the driver's parameters of one launch; the context is the current one, as for a launch."""
        handle, shared, (x, y), threads = start
        found = self._driver.CUDA_KERNEL_NODE_PARAMS()
        found.kern = self._driver.CUkernel(int(handle))
        found.gridDimX, found.gridDimY, found.gridDimZ = x, y, 1
        found.blockDimX, found.blockDimY, found.blockDimZ = threads, 1, 1
        found.sharedMemBytes, found.kernelParams = shared, table
        return found

"""Both kernels on two lengths."""

import numpy as np
import toykernels

from tilegate.protocol import Artifact, WrongResult


class _Sums:
    params = ([1_000, 4_000],)
    param_names = ("length",)
    version = "1"

    def kernel(self):
        raise NotImplementedError

    def setup(self, length):
        self._kernel = self.kernel()
        self._values = np.linspace(0, 1, length)
        self._out = np.zeros(1)

    def check(self, length):
        values = np.linspace(1, 2, length)
        self._kernel.launch(values, self._out)
        error = abs(self._out[0] / float((values * values).sum()) - 1)
        if error > 1e-9:
            raise WrongResult(f"out: relative error {error:.3g}, allowed 1e-09")

    def artifacts(self, length):
        return [Artifact("sum", self.kernel().source, {"length": length})]


class Total(_Sums):
    def kernel(self):
        return toykernels.total()

    def latency_total(self, length):
        self._kernel.launch(self._values, self._out)


class Mean(_Sums):
    def kernel(self):
        return toykernels.mean()

    def latency_mean(self, length):
        self._kernel.launch(self._values, self._out)

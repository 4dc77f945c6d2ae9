"""The kernels on one or two lengths."""

import numpy as np
import toykernels

from tilegate.protocol import Artifact, WrongResult


class _Sums:
    params = ([1_000, 4_000],)
    param_names = ("length",)
    version = "1"

    def kernel(self, param):
        raise NotImplementedError

    def setup(self, param):
        self._kernel = self.kernel(param)
        self._values = np.linspace(0, 1, 1_000)
        self._out = np.zeros(1)

    def check(self, param):
        values = np.linspace(1, 2, 1_000)
        self._kernel.launch(values, self._out)
        error = abs(self._out[0] / float((values * values).sum()) - 1)
        if error > 1e-9:
            raise WrongResult(f"out: relative error {error:.3g}, allowed 1e-09")

    def artifacts(self, param):
        return [Artifact("sum", self.kernel(param).source, {"param": param})]


class Total(_Sums):
    def kernel(self, param):
        return toykernels.total()

    def latency_total(self, param):
        self._kernel.launch(self._values, self._out)


class Mean(_Sums):
    def kernel(self, param):
        return toykernels.mean()

    def latency_mean(self, param):
        self._kernel.launch(self._values, self._out)


class Step(_Sums):
    params = (list(toykernels.STEPS),)
    param_names = ("name",)

    def kernel(self, param):
        return toykernels.step(param)

    def latency_step(self, param):
        self._kernel.launch(self._values, self._out)

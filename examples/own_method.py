"""A method of your own: pull the trained parameters back to their initial values (`--method pull-to-start+clear`)."""

from dataclasses import dataclass
from typing import Annotated

from clearl.interfaces import METHODS, Method, RunConfig, Weight, Wrapper, as_module


@dataclass(frozen=True)
class PullSettings:
    """Pull to start"""

    pull_weight: Annotated[Weight, "weight of the pull towards the initial parameters"] = 0.01


class PullToStart(Wrapper):
    label, settings, terms = "Pull to start", PullSettings, ("pull",)

    @classmethod
    def around(cls, base: Method, config: RunConfig):
        method = cls(base)
        method.weight, method.start = config.pull_weight, {}
        return method

    def weights(self):
        return {**super().weights(), "pull": self.weight}

    def losses(self, network, batch):
        now = dict(as_module(network).named_parameters())
        self.start = self.start or {name: p.detach().clone() for name, p in now.items()}
        return {**super().losses(network, batch), "pull": sum((now[n] - p).abs().sum() for n, p in self.start.items())}

    def own_tensors(self):
        return self.start

    def restore_own(self, network, tensors, state):
        self.start = dict(tensors)


METHODS.register("pull-to-start", PullToStart)

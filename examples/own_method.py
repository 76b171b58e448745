"""A method of your own: pull the trained parameters back to their initial values."""
# clearl run --imports examples.own_method --method pull-to-start+clear --pull-weight 0.05 --out runs/mine

from dataclasses import dataclass
from typing import Annotated

from clearl.interfaces import METHODS, Method, RunConfig, Weight, Wrapper, as_module


@dataclass(frozen=True)
class PullSettings:
    """Pull to start"""

    pull_weight: Annotated[Weight, "weight of the pull towards the initial parameters"] = 0.01


class PullToStart(Wrapper):
    label, colour, settings, terms = "Pull to start", "#7a5195", PullSettings, ("pull",)

    @classmethod
    def around(cls, base: Method, config: RunConfig):
        method = cls(base)
        method.pull_weight = config.pull_weight
        return method

    def build_network(self, build):
        network = super().build_network(build)
        self.start = {name: p.detach().clone() for name, p in as_module(network).named_parameters()}
        return network

    def weights(self):
        return {**super().weights(), "pull": self.pull_weight}

    def losses(self, network, batch):
        pulls = [(p - self.start[name]).abs().sum() for name, p in as_module(network).named_parameters()]
        return {**super().losses(network, batch), "pull": sum(pulls)}


METHODS.register("pull-to-start", PullToStart)

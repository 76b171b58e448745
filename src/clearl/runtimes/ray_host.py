"""A Ray cluster as the host of a run's actors; see `clearl.runtimes.driver.Host` and `clearl.runtimes.actors`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from clearl.runtimes.actors import ActorLost, ActorSite, Wanted
from clearl.runtimes.driver import MakeSite
from clearl.runtimes.hosted import HostedChild, HostedLearner, Luggage
from clearl.runtimes.job import Order
from clearl.runtimes.ray_nodes import addresses, check_nodes, child_place, learner_place, on_node


class RayActor:
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def call(self, method: str, *given: Any) -> Any:
        return getattr(self.handle, method).remote(*given)

    def call_aside(self, method: str, *given: Any) -> Any:
        return getattr(self.handle, method).options(concurrency_group="aside").remote(*given)

    def kill(self) -> None:
        ray.kill(self.handle)


class RayPost:
    def arrived(self, calls: Sequence[Any], wait_s: float) -> list[Any]:
        if wait_s and not ray.wait(list(calls), timeout=wait_s)[0]:
            return []
        return ray.wait(list(calls), num_returns=len(calls), timeout=0)[0]

    def answer(self, call: Any) -> Any:
        try:
            return ray.get(call)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise ActorLost(in_words(error)) from error

    def publish(self, value: Any) -> Any:
        return ray.put(value)


class ChildActor(HostedChild):
    def place(self) -> str:
        return ray.get_runtime_context().get_node_id()


class RayHost:
    def __init__(self, order: Order) -> None:
        self._order, self.post = order, RayPost()
        self.luggage = self.post.publish(Luggage.of(order.run_dir))
        make: Any = ray.remote  # its type does not know concurrency groups
        self._learners, self._children = map(make(concurrency_groups={"aside": 1}), (HostedLearner, ChildActor))

    def learner(self) -> tuple[RayActor, str]:
        here = ray.get_runtime_context().get_node_id()
        node, gpus = learner_place(self._order.config.device, here, ray.nodes())
        actor = self._learners.options(num_cpus=0, num_gpus=gpus, **on_node(node)).remote()
        return RayActor(actor), addresses()[node]

    def child(self, wanted: Wanted) -> RayActor:
        return RayActor(self._children.options(**child_place(wanted)).remote())

    def check(self) -> MakeSite:
        return partial(ActorSite, self.post, check_nodes(self._order, self.luggage))


def in_words(error: RayError) -> str:
    """The one sentence of Ray's message that says why."""
    text = " ".join(str(error).split())
    found = re.search(r"because (its .*?has died|the actor's .*?died|.*?)(\.|$)", text)
    return f"died: {found[1] if found else text[:200]}"

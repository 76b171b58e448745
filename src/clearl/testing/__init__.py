"""Public conformance checks: what every method, suite, protocol and environment must do.

Each raises an `AssertionError` that says what is wrong. Our own tests run the same checks over the registries.

    def test_my_method():
        import my_method                       # registers "pull-to-start"
        clearl.testing.check_method("pull-to-start")
"""

from clearl.testing.environments import check_env
from clearl.testing.methods import METHOD_CHECKS, check_method
from clearl.testing.protocols import check_protocol
from clearl.testing.suites import SUITE_CHECKS, check_suite

__all__ = ["METHOD_CHECKS", "SUITE_CHECKS", "check_env", "check_method", "check_protocol", "check_suite"]

"""What all tests of the checkout share."""

from hypothesis import HealthCheck, settings

#: A busy machine may stop a test for as long as it likes: no example is late, none is slow.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Each run has the same examples, so that the same code has the same verdict; "explore" has others.
settings.register_profile("same", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT)
settings.load_profile("same")

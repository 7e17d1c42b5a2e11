"""What all tests of the checkout share."""

from hypothesis import HealthCheck, settings

#: A busy machine may stop a test for as long as it likes: no example is late, none is slow.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

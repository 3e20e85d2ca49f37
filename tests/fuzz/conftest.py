from hypothesis import settings

settings.register_profile("fuzz", max_examples=10_000)

"""Numbers for the kinds of lane that an item may need: three of the host, and three roles for each device."""

COMPUTE, COPY, LOOP = 0, 1, 2  # of the host; a LOOP item is awaited on the trio loop
KIND_WORDS = ("compute", "copy", "loop")

# What a device item needs to start is a lane of its device: kind 3 * place + role.
LAUNCH, IN, OUT = 0, 1, 2
ROLE_WORDS = ("compute", "in", "out")

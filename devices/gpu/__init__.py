"""CUDA and HIP through CuPy, one code path; read ``driver`` first, then ``stream``."""

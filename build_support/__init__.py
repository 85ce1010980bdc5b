"""How the package is built: requirements, the choice of MPI, and the CMake step. Standard library only."""

"""The build of the package: requirements, the choice of MPI, and the CMake step. Standard library only."""

# What the NCCL backend is made of; the tests compile it once more, with a shim in place of the library.
set(nccl_sources nccl_version.cpp nccl_plan.cpp nccl_world.cpp nccl_comm.cpp nccl_groups.cpp)
set(nccl_library nccl_api.cpp)

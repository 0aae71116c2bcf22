// Joins without the component mpi.
#include <shardway/shm.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    shardway::HostGroup::join();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}

// The calls of tensors, for a group that somebody else has made.
#pragma once

#include <shardway/group.h>

// Each rank prints what it got, behind its number.
void make_tensor_calls(const shardway::Group& world);

// Prints what a call throws after MPI_Finalize.
void call_too_late(const shardway::Group& world);

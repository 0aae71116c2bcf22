// Everything that shardway offers to C++.
#pragma once

#include "shardway/collective_utils.h"
#include "shardway/collectives.h"
#include "shardway/dims.h"
#include "shardway/group.h"
#include "shardway/kept_memory.h"
#include "shardway/layout.h"
#include "shardway/memory.h"
#include "shardway/mesh_collectives.h"
#include "shardway/mesh_tensor.h"
#include "shardway/nn.h"
#include "shardway/page.h"
#include "shardway/plan.h"
#include "shardway/redistribute.h"
#include "shardway/route.h"
#include "shardway/topology.h"
#include "shardway/version.h"

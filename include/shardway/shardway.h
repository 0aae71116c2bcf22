// Everything that shardway offers to C++.
#pragma once

#include "shardway/collectives.h"
#include "shardway/group.h"
#include "shardway/memory.h"
#include "shardway/nn.h"
#include "shardway/route.h"
#include "shardway/version.h"

// What Hugging Face's configs say of experts and their routers.
#pragma once

#include "penstock/v1/job.pb.h"
#include "planner/cli/model/config_fields.h"

namespace penstock::cli {

// What all models with experts have. Behind their layers.
void ReadExperts(ConfigFields& fields, v1::ModelSpec& model);

// Of Qwens, some of whose layers may have none: their width is `intermediate_size`, which is read before.
void ReadQwenExperts(ConfigFields& fields, v1::ModelSpec& model);

}  // namespace penstock::cli

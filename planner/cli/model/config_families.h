// One function for each family of models that config.json may describe. Private to hugging_face_config.cc.
#pragma once

#include "penstock/v1/job.pb.h"
#include "planner/cli/model/config_fields.h"

namespace penstock::cli {

void ReadGpt2(ConfigFields& fields, v1::ModelSpec& model);
void ReadLlama(ConfigFields& fields, v1::ModelSpec& model);
void ReadT5(ConfigFields& fields, v1::ModelSpec& model);

}  // namespace penstock::cli

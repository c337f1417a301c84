// How many layers a model has, whichever its architecture: those of a decoder alone, or encoder and decoder.
#pragma once

#include <cstdint>

#include "penstock/v1/job.pb.h"

namespace penstock::core {

inline uint32_t TotalLayers(const v1::ModelSpec& model) {
  return model.layers() + model.encoder_layers() + model.decoder_layers();
}

}  // namespace penstock::core

// A diagnosis for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "planner/core/diagnose/diagnose.h"

namespace penstock::cli {

std::string DiagnosisReport(const core::Timeline& timeline, const core::Diagnosis& diagnosis);
nlohmann::ordered_json DiagnosisJson(const core::Timeline& timeline, const core::Diagnosis& diagnosis);

}  // namespace penstock::cli

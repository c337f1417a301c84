// The causes that a timeline can have, by what they are of. Each adds what it finds, with its gain by replay.
#pragma once

#include "planner/core/diagnose/exchange_times.h"
#include "planner/core/diagnose/pass_times.h"
#include "planner/core/diagnose/step_replays.h"

namespace penstock::core {

// Slow ranks; cores that others have; single passes that stall.
void AddRankCauses(const StepReplays& replays, const PassTimes& passes, Causes& causes);

// Unequal micro-batches, unequal stages.
void AddWorkCauses(const StepReplays& replays, const PassTimes& passes, Causes& causes);

// Slow links and rings.
void AddExchangeCauses(const StepReplays& replays, const ExchangeTimes& exchanges, Causes& causes);

// Ranks that begin late, hosts that let time pass, batches that are waited for.
void AddHostCauses(const StepReplays& replays, Causes& causes);

// Times that were foreseen wrongly.
void AddWrongCosts(const StepReplays& replays, const PassTimes& passes, const ExchangeTimes& exchanges,
                   Causes& causes);

}  // namespace penstock::core

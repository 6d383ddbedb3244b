// Which frames say what a thread is doing, by the tables of known/.
#pragma once

#include "known/rules.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

// The first rule that holds. nullptr if there is none, or if it says that such a frame shows nothing.
const known::ActivityRule* activity_rule_of(const Frame& frame);

}  // namespace rankstacks::analyzers

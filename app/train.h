// THE LOOP.
#pragma once
#include "app/place.h"
#include "core/base/error.h"
#include "core/spec/read.h"

namespace trainer {

// Trains, or resumes from the newest good checkpoint. Returns Exit::done, or Exit::preempted after a signal and a save;
// everything else is thrown.
Exit train(const LoadedSpec&, const Place&);

}  // namespace trainer

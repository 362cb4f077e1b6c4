// Every operation of the project.
#pragma once
#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/control.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/matmul.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/rope.h"
#include "core/ops/vocabulary.h"

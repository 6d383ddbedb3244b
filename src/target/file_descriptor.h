#pragma once

#include "base/file_descriptor.h"

// The precompiled header of the tests without LibTorch.
#pragma once

#include <catch2/catch.hpp>

#include "core/pch.h"

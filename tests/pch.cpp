// The source for which pch.h is precompiled: main.cpp includes Catch2 in a way of its own.

// The bounds that keep every pattern, schema and cache of this folder within stated time and memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace snug::grammar {

inline constexpr std::size_t kMaxPatternBytes = 16 << 10;
inline constexpr int kMaxGroupDepth = 64;               // groups inside groups of a regular expression
inline constexpr std::uint32_t kMaxRepeat = 10000;      // a count in {m,n}, minLength, maxItems, …
inline constexpr std::size_t kMaxSchemaValues = 50000;  // values of any kind in a schema
inline constexpr int kMaxSchemaDepth = 64;              // schemas inside schemas
inline constexpr std::size_t kMaxChoiceBytes = 1 << 20;

inline constexpr std::uint64_t kMaxNfaStates = 200000;
inline constexpr std::size_t kMaxStates = 120000;           // of the deterministic automaton
inline constexpr std::uint64_t kMaxSetElements = 8u << 20;  // of all subsets together: 32 MiB while compiling
inline constexpr std::uint64_t kMaxCompileSteps = 60u << 20;  // well under a second

// Calls of recursive rules ($ref, free arrays and objects) inside one another.
inline constexpr std::uint32_t kMaxDepth = 64;
// Readings of one text that are followed side by side; further ones are dropped, each of those kept can
// still be completed.
inline constexpr std::size_t kMaxReadings = 64;

}  // namespace snug::grammar

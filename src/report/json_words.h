// The words of the JSON report (docs/json.md) for enumerations: one table for each, used by the writer and the reader.
#pragma once

#include "base/word_table.h"
#include "model/snapshot.h"

namespace rankstacks::report {

inline constexpr WordTable<StackEnd, 6> kStackEndWords = {{{StackEnd::kComplete, "complete"},
                                                           {StackEnd::kNoUnwindInfo, "no-unwind-info"},
                                                           {StackEnd::kMemoryUnavailable, "memory-unavailable"},
                                                           {StackEnd::kRepeatedFrame, "repeated-frame"},
                                                           {StackEnd::kDepthLimit, "depth-limit"},
                                                           {StackEnd::kRegistersUnknown, "registers-unknown"}}};
inline constexpr WordTable<ReadMethod, 4> kReadMethodWords = {{{ReadMethod::kStopped, "stopped"},
                                                               {ReadMethod::kPartlyStopped, "partly-stopped"},
                                                               {ReadMethod::kWithoutStop, "without-stop"},
                                                               {ReadMethod::kCore, "core"}}};
inline constexpr WordTable<ExceptionCause, 3> kExceptionCauseWords = {
    {{ExceptionCause::kOwnGpu, "own-gpu"}, {ExceptionCause::kTimeout, "timeout"}, {ExceptionCause::kPeer, "peer"}}};
inline constexpr WordTable<KernelKill::Cause, 2> kKernelKillWords = {
    {{KernelKill::Cause::kOutOfMemory, "out-of-memory"}, {KernelKill::Cause::kFault, "fault"}}};
inline constexpr WordTable<ExceptionLink, 2> kExceptionLinkWords = {
    {{ExceptionLink::kCause, "cause"}, {ExceptionLink::kContext, "context"}}};
inline constexpr WordTable<PythonLockKind, 4> kPythonLockWords = {{{PythonLockKind::kLock, "Lock"},
                                                                   {PythonLockKind::kRLock, "RLock"},
                                                                   {PythonLockKind::kModule, "module lock"},
                                                                   {PythonLockKind::kCondition, "condition"}}};
inline constexpr WordTable<EndKind, 5> kEndKindWords = {{{EndKind::kPipe, "pipe"},
                                                         {EndKind::kSocket, "socket"},
                                                         {EndKind::kLock, "lock"},
                                                         {EndKind::kChild, "child"},
                                                         {EndKind::kDatabase, "database"}}};
inline constexpr WordTable<FaultRegion, 4> kFaultRegionWords = {{{FaultRegion::kFirstPage, "first-page"},
                                                                 {FaultRegion::kBelowStack, "below-stack"},
                                                                 {FaultRegion::kMapped, "mapped"},
                                                                 {FaultRegion::kUnmapped, "unmapped"}}};
inline constexpr WordTable<Gil, 2> kGilWords = {{{Gil::kHolds, "holds"}, {Gil::kWaits, "waits"}}};
inline constexpr WordTable<Source, 3> kSourceWords = {
    {{Source::kLive, "live"}, {Source::kCore, "core"}, {Source::kDump, "dump"}}};
inline constexpr WordTable<RankKind, 2> kRankKindWords = {{{RankKind::kRank, "rank"}, {RankKind::kChild, "child"}}};
inline constexpr WordTable<Status, 3> kStatusWords = {
    {{Status::kComplete, "complete"}, {Status::kPartial, "partial"}, {Status::kFailed, "failed"}}};
inline constexpr WordTable<ProblemCode, 17> kProblemCodeWords = {{{ProblemCode::kOther, "other"},
                                                                  {ProblemCode::kEnded, "ended"},
                                                                  {ProblemCode::kNotFound, "not-found"},
                                                                  {ProblemCode::kPermission, "permission"},
                                                                  {ProblemCode::kUnreadable, "unreadable"},
                                                                  {ProblemCode::kMalformed, "malformed"},
                                                                  {ProblemCode::kUnsupported, "unsupported"},
                                                                  {ProblemCode::kMismatch, "mismatch"},
                                                                  {ProblemCode::kTimeout, "timeout"},
                                                                  {ProblemCode::kLimit, "limit"},
                                                                  {ProblemCode::kIncomplete, "incomplete"},
                                                                  {ProblemCode::kFileMissing, "file-missing"},
                                                                  {ProblemCode::kFileMismatch, "file-mismatch"},
                                                                  {ProblemCode::kFileUnverified, "file-unverified"},
                                                                  {ProblemCode::kModuleOverlap, "module-overlap"},
                                                                  {ProblemCode::kGpu, "gpu"},
                                                                  {ProblemCode::kFromOtherTool, "from-other-tool"}}};
inline constexpr WordTable<FrameKind, 3> kFrameKindWords = {
    {{FrameKind::kNative, "native"}, {FrameKind::kPython, "python"}, {FrameKind::kGpu, "gpu"}}};
inline constexpr WordTable<GpuSource, 2> kGpuSourceWords = {
    {{GpuSource::kDebugger, "debugger"}, {GpuSource::kCore, "core"}}};
inline constexpr WordTable<FrameOrigin, 4> kFrameOriginWords = {{{FrameOrigin::kNormal, "normal"},
                                                                 {FrameOrigin::kFramePointer, "frame-pointer"},
                                                                 {FrameOrigin::kReturnSlot, "return-slot"},
                                                                 {FrameOrigin::kSeparate, "separate"}}};

}  // namespace rankstacks::report

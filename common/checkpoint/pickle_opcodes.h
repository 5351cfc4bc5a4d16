// SPDX-License-Identifier: Apache-2.0
// Opcodes of Python's pickles, protocols 2 to 5 (pickletools.py).
#pragma once

#include <cstdint>

namespace baton::checkpoint {

// Those that are read.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNoneValue = 'N',
  kBinFloat = 'G',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobalName = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// Opcodes that exist and are refused, for messages.
struct RefusedOpcode {
  uint8_t opcode;
  const char* name;
};
inline constexpr RefusedOpcode kRefusedOpcodes[] = {{'0', "POP"},
                                                    {'1', "POP_MARK"},
                                                    {'2', "DUP"},
                                                    {'B', "BINBYTES"},
                                                    {'C', "SHORT_BINBYTES"},
                                                    {'F', "FLOAT"},
                                                    {'I', "INT"},
                                                    {'L', "LONG"},
                                                    {'P', "PERSID"},
                                                    {'S', "STRING"},
                                                    {'T', "BINSTRING"},
                                                    {'U', "SHORT_BINSTRING"},
                                                    {'V', "UNICODE"},
                                                    {'d', "DICT"},
                                                    {'g', "GET"},
                                                    {'i', "INST"},
                                                    {'l', "LIST"},
                                                    {'o', "OBJ"},
                                                    {'p', "PUT"},
                                                    {0x81, "NEWOBJ"},
                                                    {0x82, "EXT1"},
                                                    {0x83, "EXT2"},
                                                    {0x84, "EXT4"},
                                                    {0x8b, "LONG4"},
                                                    {0x8e, "BINBYTES8"},
                                                    {0x8f, "EMPTY_SET"},
                                                    {0x90, "ADDITEMS"},
                                                    {0x91, "FROZENSET"},
                                                    {0x92, "NEWOBJ_EX"},
                                                    {0x96, "BYTEARRAY8"},
                                                    {0x97, "NEXT_BUFFER"},
                                                    {0x98, "READONLY_BUFFER"}};

}  // namespace baton::checkpoint

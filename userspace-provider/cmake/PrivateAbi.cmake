# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Which private ABIs of libibverbs the provider can be built for, which one a library has, and which ones are wanted.
# The number is not to be had from the soname or from pkg-config, but it is part of the name of the registration function.
#
# Included by CMakeLists.txt; alone: cmake -DLIBRARY=... [-DABIS=...] -P PrivateAbi.cmake

cmake_minimum_required(VERSION 3.25)

# Those that verbs/abi.hpp describes
set(SOFTWARP_KNOWN_ABIS 34 57 59 64 65)
set(softwarp_known_text "34 (rdma-core 34 to 56), 57 (57, 58), 59 (59 to 63), 64 (64) and 65 (65)")

# Sets result to the private ABI of a library, among the known ones if there are several, else to what it has.
function(softwarp_private_abi library result)
  find_program(READELF NAMES readelf llvm-readelf)
  if(NOT READELF)
    message(FATAL_ERROR "readelf (package binutils) is needed to find out the private ABI of ${library}.")
  endif()
  execute_process(
    COMMAND ${READELF} --dyn-syms -W ${library}
    OUTPUT_VARIABLE symbols
    RESULT_VARIABLE failed)
  if(NOT failed EQUAL 0)
    message(FATAL_ERROR "${READELF} cannot read ${library}.")
  endif()

  string(REGEX MATCHALL "verbs_register_driver_[0-9]+" found "${symbols}")
  list(REMOVE_DUPLICATES found)
  list(TRANSFORM found REPLACE "verbs_register_driver_" "")
  foreach(abi IN LISTS SOFTWARP_KNOWN_ABIS)
    if(abi IN_LIST found)
      set(found ${abi})
    endif()
  endforeach()
  list(JOIN found ", " text)
  message(STATUS "libibverbs: ${library}, private ABI ${text}")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Sets result to the ABIs to build for: what is wanted, else what is installed.  Stops for those that are not known.
function(softwarp_choose_private_abis wanted installed result)
  if(wanted STREQUAL "all")
    set(chosen ${SOFTWARP_KNOWN_ABIS})
  elseif(NOT wanted STREQUAL "")
    set(chosen ${wanted})
  elseif(installed IN_LIST SOFTWARP_KNOWN_ABIS)
    set(chosen ${installed})
  else()
    if(installed)
      list(JOIN installed ", " has)
      set(has "private ABI ${has}")
    else()
      set(has "no registration function verbs_register_driver_N at all")
    endif()
    message(FATAL_ERROR
      "softwarp's provider knows the private ABIs ${softwarp_known_text} of libibverbs, "
      "but the installed library has ${has}.  "
      "SOFTWARP_PRIVATE_ABIS names others to build for.")
  endif()
  list(REMOVE_DUPLICATES chosen)
  foreach(abi IN LISTS chosen)
    if(NOT abi IN_LIST SOFTWARP_KNOWN_ABIS)
      message(FATAL_ERROR
        "SOFTWARP_PRIVATE_ABIS: ${abi} is no private ABI of libibverbs that softwarp's provider knows; "
        "it knows ${softwarp_known_text}, and \"all\".")
    endif()
  endforeach()
  list(JOIN chosen ", " text)
  message(STATUS "the provider is built for private ABI ${text}")
  set(${result} "${chosen}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  softwarp_private_abi("${LIBRARY}" installed)
  softwarp_choose_private_abis("${ABIS}" "${installed}" chosen)
endif()

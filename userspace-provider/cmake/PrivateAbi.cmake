# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Stops when the libibverbs in LIBRARY does not have the private ABI that the
# provider is written for.  The number is not to be had from the soname or from
# pkg-config, but it is part of the name of the registration function.
#
# Included by CMakeLists.txt; alone: cmake -DLIBRARY=... -P PrivateAbi.cmake

cmake_minimum_required(VERSION 3.25)

set(SOFTWARP_PRIVATE_ABI 34)

function(softwarp_check_private_abi library)
  find_program(READELF NAMES readelf llvm-readelf)
  if(NOT READELF)
    message(FATAL_ERROR "readelf (package binutils) is needed to find out the private ABI of ${library}.")
  endif()
  execute_process(
    COMMAND ${READELF} --dyn-syms -W ${library}
    OUTPUT_VARIABLE symbols
    RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${READELF} cannot read ${library}.")
  endif()

  string(REGEX MATCHALL "verbs_register_driver_[0-9]+" found "${symbols}")
  list(REMOVE_DUPLICATES found)
  list(TRANSFORM found REPLACE "verbs_register_driver_" "")
  if(NOT SOFTWARP_PRIVATE_ABI IN_LIST found)
    if(found)
      list(JOIN found ", " has)
      set(has "private ABI ${has}")
    else()
      set(has "no registration function verbs_register_driver_N at all")
    endif()
    message(FATAL_ERROR
      "softwarp's provider is written for private ABI ${SOFTWARP_PRIVATE_ABI} of libibverbs "
      "(rdma-core 34 to 56, for example Debian 12), but ${library} has ${has}.")
  endif()
  message(STATUS "libibverbs: ${library}, private ABI ${SOFTWARP_PRIVATE_ABI}")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  softwarp_check_private_abi("${LIBRARY}")
endif()

# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# For the projects below tests/: the language, warnings, the top of the tree, where results go.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
add_compile_options(-Wall -Wextra -Werror)

get_filename_component(TOP "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(SOFTWARP_OUTPUT "${TOP}/build" CACHE PATH "where the results go")

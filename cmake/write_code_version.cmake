# Writes OUTPUT, a C++ source with the commit of SOURCE; leaves the file alone when nothing changed.
find_program(GIT git)
set(commit "unknown")
set(dirty "true")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    set(commit "unknown")
  else()
    # Only what is compiled counts; untracked sources are compiled too.
    execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain -- src apps/xformer apps/xformer-engine cmake protocols CMakeLists.txt
                    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(changes STREQUAL "")
      set(dirty "false")
    endif()
  endif()
endif()
set(content "// Generated: what was compiled.\n#include \"core/code_version.h\"\n\nnamespace xformer {\n
const CodeVersion& code_version() {\n  static const CodeVersion kVersion{\"${VERSION}\", \"${commit}\", ${dirty}, \"${COMPILER}\", \"${BUILD}\"};\n  return kVersion;\n}\n\n}  // namespace xformer\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()

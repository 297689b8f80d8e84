# Writes OUTPUT, the header with a hash of HEADERS in SOURCE and of their names.
set(all "")
foreach(header IN LISTS HEADERS)
  file(SHA256 ${SOURCE}/${header} hash)
  string(APPEND all "${header} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "// Generated: what src/attention/plugin.h says.\n#define XFORMER_HEADERS \"${hash}\"\n")

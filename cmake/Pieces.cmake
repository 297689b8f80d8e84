# libxformer_pieces.so, beside the program: SentencePiece behind functions of C, opened when a text is cut into pieces
# (src/data/text/sentencepiece_door.h says why it is a library of its own). Debian has SentencePiece as shared libraries alone.
find_path(XFORMER_SENTENCEPIECE_INCLUDE sentencepiece_trainer.h)
find_library(XFORMER_SENTENCEPIECE sentencepiece)
find_library(XFORMER_SENTENCEPIECE_TRAIN sentencepiece_train)
if(NOT XFORMER_SENTENCEPIECE_INCLUDE OR NOT XFORMER_SENTENCEPIECE OR NOT XFORMER_SENTENCEPIECE_TRAIN)
  message(FATAL_ERROR "No SentencePiece found: sentencepiece_trainer.h or its libraries are missing. Run scripts/setup, or "
                      "install what Debian's package libsentencepiece-dev holds.")
endif()
add_library(xformer_pieces MODULE ${CMAKE_SOURCE_DIR}/src/data/text/sentencepiece_library.cpp)
target_include_directories(xformer_pieces PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(xformer_pieces SYSTEM PRIVATE ${XFORMER_SENTENCEPIECE_INCLUDE})
target_compile_options(xformer_pieces PRIVATE -fvisibility=hidden)
target_link_libraries(xformer_pieces PRIVATE ${XFORMER_SENTENCEPIECE_TRAIN} ${XFORMER_SENTENCEPIECE})
set_target_properties(xformer_pieces PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} INSTALL_RPATH "$ORIGIN")
# Who links the data layer opens it.
add_dependencies(xformer_data xformer_pieces)

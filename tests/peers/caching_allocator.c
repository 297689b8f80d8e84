/* A caching allocator to be put under an unchanged program with LD_PRELOAD: large blocks that are freed are kept by
   size class and given out again, so that their pages are not taken from the system anew. Small blocks stay with glibc.

   A large block is a mapping of its own: a page with the header, then the memory. Its address is a multiple of the page,
   and the header before it names it; that is how free() tells it from glibc's blocks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { kPage = 4096, kLarge = 64 * 1024, kSteps = 8, kClasses = 64 * kSteps };
static const uint64_t kMagic = 0x9d3f6a1c54be8027u;

struct header {
  uint64_t magic, self; /* self: the address of the header itself */
  size_t size;          /* of the class, without the header's page */
  int class;
  struct header* next;
};

static struct header* kept[kClasses];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

/* Classes are powers of two with eight steps between, so that at most an eighth is lost. */
static int class_of(size_t size, size_t* rounded) {
  const int power = 63 - __builtin_clzl(size - 1); /* 2^power < size <= 2^(power + 1) */
  const size_t base = (size_t)1 << power, step = base / kSteps;
  const size_t steps = (size - base + step - 1) / step;
  *rounded = base + steps * step;
  return power * kSteps + (int)steps - 1;
}

static struct header* header_of(void* memory) {
  if (memory == NULL || (uintptr_t)memory % kPage != 0) return NULL;
  struct header* header = (struct header*)((char*)memory - kPage);
  return header->magic == kMagic && header->self == (uintptr_t)header ? header : NULL;
}

static void* take_large(size_t size, int zeroed) {
  size_t rounded;
  if (size > SIZE_MAX / 2) {
    errno = ENOMEM;
    return NULL;
  }
  const int class = class_of(size, &rounded);
  pthread_mutex_lock(&lock);
  struct header* header = kept[class];
  if (header != NULL) kept[class] = header->next;
  pthread_mutex_unlock(&lock);
  if (header != NULL) {
    char* memory = (char*)header + kPage;
    if (zeroed) memset(memory, 0, size);
    return memory;
  }
  void* mapped = mmap(NULL, rounded + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    errno = ENOMEM;
    return NULL;
  }
  header = mapped;
  *header = (struct header){kMagic, (uintptr_t)mapped, rounded, class, NULL};
  return (char*)mapped + kPage;
}

void* malloc(size_t size) { return size < kLarge ? __libc_malloc(size) : take_large(size, 0); }

void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes < kLarge) return __libc_calloc(count, size);
  return take_large(bytes, 1);
}

void free(void* memory) {
  struct header* header = header_of(memory);
  if (header == NULL) {
    __libc_free(memory);
    return;
  }
  pthread_mutex_lock(&lock);
  header->next = kept[header->class];
  kept[header->class] = header;
  pthread_mutex_unlock(&lock);
}

void* realloc(void* memory, size_t size) {
  struct header* header = header_of(memory);
  if (header == NULL) return __libc_realloc(memory, size);
  if (size <= header->size && size >= header->size / 2) return memory;
  if (size == 0) {
    free(memory);
    return NULL;
  }
  void* moved = malloc(size);
  if (moved == NULL) return NULL;
  memcpy(moved, memory, size < header->size ? size : header->size);
  free(memory);
  return moved;
}

void* memalign(size_t alignment, size_t size) {
  return size < kLarge || alignment > kPage ? __libc_memalign(alignment, size) : take_large(size, 0);
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** memory, size_t alignment, size_t size) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
  void* taken = memalign(alignment, size);
  if (taken == NULL) return ENOMEM;
  *memory = taken;
  return 0;
}

size_t malloc_usable_size(void* memory) {
  static size_t (*of_glibc)(void*);
  struct header* header = header_of(memory);
  if (header != NULL) return header->size;
  if (of_glibc == NULL) of_glibc = (size_t(*)(void*))dlsym(RTLD_NEXT, "malloc_usable_size");
  return of_glibc(memory);
}

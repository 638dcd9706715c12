// The cost of a frame through a TAP interface, by the way to call the kernel: read and writev, a call for each frame,
// against io_uring with one call for a batch, and against multishot reads into provided buffers. The TAP's file is
// registered; the frames' EtherType has no receiver, so that hardly more than the driver's work is measured.
//
// Prints nanoseconds a frame, and those of a read that finds no frame: median, 10th and 90th percentile of the rounds,
// which alternate. Needs root and a network namespace of its own, which bench/tap-batches.sh provides.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES = 512, MOST = 64, ROOM = 2048, VNET = 12, PRIVATE = 128, READ_MULTISHOT = 49, NO_WAIT = 8 };

// Ways to call the kernel: frames of a call to io_uring, or one of these.
enum { CALLS = 0, MULTISHOT = -1 };
static const int WAYS[] = {CALLS, 1, 8, 32, 64, MULTISHOT}, LENGTHS[] = {60, 1514};
enum { WAY = 6, LENGTH = 2 };

static int tap, host, ring;
static unsigned *sq_tail, *sq_mask, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static struct io_uring_buf_ring *provided;
static uint16_t provided_tail;
static char rooms[MOST][ROOM], vnet[VNET], header[PRIVATE], payload[ROOM];
static struct iovec pieces[MOST][3];

static void check(int ok, const char *what) {
  if (!ok) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static struct io_uring_sqe *entry(unsigned i, int opcode) {
  struct io_uring_sqe *e = &sqes[(*sq_tail + i) & *sq_mask];
  memset(e, 0, sizeof *e);
  e->opcode = opcode;
  e->flags = IOSQE_FIXED_FILE;
  e->off = -1;  // no position
  return e;
}

static void enter(unsigned submit, unsigned wait) {
  __atomic_store_n(sq_tail, *sq_tail + submit, __ATOMIC_RELEASE);
  int done = syscall(__NR_io_uring_enter, ring, submit, wait, IORING_ENTER_GETEVENTS, 0, 0);
  check(done == (int)submit, "io_uring_enter");
}

// Submits entries and returns the number that moved a frame.
static int batch(int entries) {
  enter(entries, entries);
  int moved = 0;
  unsigned end = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
  for (unsigned at = *cq_head; at != end; at++) moved += cqes[at & *cq_mask].res > 0;
  __atomic_store_n(cq_head, end, __ATOMIC_RELEASE);
  return moved;
}

static void provide(int room) {
  struct io_uring_buf *to = &provided->bufs[provided_tail++ & (MOST - 1)];
  to->addr = (uintptr_t)rooms[room];
  to->len = ROOM;
  to->bid = room;
}

static void set_up_ring(void) {
  struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
  ring = syscall(__NR_io_uring_setup, MOST, &p);
  check(ring >= 0, "io_uring_setup");
  size_t bytes = p.cq_off.cqes + p.cq_entries * sizeof *cqes + p.sq_entries * sizeof(unsigned);
  char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
  check(at != MAP_FAILED, "mmap");
  sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
  check(sqes != MAP_FAILED, "mmap");
  sq_tail = (unsigned *)(at + p.sq_off.tail), sq_mask = (unsigned *)(at + p.sq_off.ring_mask);
  cq_head = (unsigned *)(at + p.cq_off.head), cq_tail = (unsigned *)(at + p.cq_off.tail);
  cq_mask = (unsigned *)(at + p.cq_off.ring_mask), cqes = (struct io_uring_cqe *)(at + p.cq_off.cqes);
  for (unsigned i = 0; i <= *sq_mask; i++) ((unsigned *)(at + p.sq_off.array))[i] = i;
  check(!syscall(__NR_io_uring_register, ring, IORING_REGISTER_FILES, &tap, 1), "IORING_REGISTER_FILES");
  provided = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
  struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)provided, .ring_entries = MOST};
  check(!syscall(__NR_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &reg, 1), "IORING_REGISTER_PBUF_RING");
  for (int i = 0; i < MOST; i++) provide(i);
  __atomic_store_n(&provided->tail, provided_tail, __ATOMIC_RELEASE);
}

// Takes frames until the queue is dry, as multishot reads; returns their number.
static int take_multishot(double *end) {
  int taken = 0, armed = 0;
  for (int before = -1; !armed || taken != before;) {
    before = taken;
    if (!armed) {
      struct io_uring_sqe *e = entry(0, READ_MULTISHOT);
      e->flags |= IOSQE_BUFFER_SELECT;
    }
    enter(!armed, 0);
    armed = 1;
    unsigned last = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
    for (unsigned at = *cq_head; at != last; at++) {
      struct io_uring_cqe *c = &cqes[at & *cq_mask];
      if (c->res > 0) taken++, provide(c->flags >> IORING_CQE_BUFFER_SHIFT);
      if (!(c->flags & IORING_CQE_F_MORE)) armed = 0;
    }
    __atomic_store_n(cq_head, last, __ATOMIC_RELEASE);
    __atomic_store_n(&provided->tail, provided_tail, __ATOMIC_RELEASE);
  }
  *end = now();
  struct io_uring_sqe *e = entry(0, IORING_OP_ASYNC_CANCEL);
  e->cancel_flags = IORING_ASYNC_CANCEL_ANY, e->flags = 0, e->off = 0;
  enter(1, 2);
  __atomic_store_n(cq_head, __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
  return taken;
}

static double take(int way) {
  double start = now(), end = 0;
  int taken = 0, more = 1;
  if (way == CALLS)
    while (read(tap, rooms[taken % MOST], ROOM) > 0) taken++;
  else if (way == MULTISHOT)
    taken = take_multishot(&end);
  else
    while (more) {
      for (int i = 0; i < way; i++) {
        struct io_uring_sqe *e = entry(i, IORING_OP_READ);
        e->addr = (uintptr_t)rooms[i], e->len = ROOM, e->rw_flags = NO_WAIT;
      }
      int moved = batch(way);
      taken += moved, more = moved == way;
    }
  end = end ? end : now();
  check(taken == FRAMES, "frames are missing");
  return (end - start) / FRAMES;
}

// The pieces of a frame as the switch has them: offload header, private header, payload.
static int compose(int i, int len) {
  int private = len < PRIVATE ? len : PRIVATE;
  pieces[i][0] = (struct iovec){vnet, VNET}, pieces[i][1] = (struct iovec){header, private};
  pieces[i][2] = (struct iovec){payload, len - private};
  return len > private ? 3 : 2;
}

static double give(int way, int len) {
  double start = now();
  for (int sent = 0; sent < FRAMES; sent += way == CALLS ? 1 : way) {
    if (way == CALLS) {
      check(writev(tap, pieces[0], compose(0, len)) > 0, "writev");
      continue;
    }
    for (int i = 0; i < way; i++) {
      struct io_uring_sqe *e = entry(i, IORING_OP_WRITEV);
      e->addr = (uintptr_t)pieces[i], e->len = compose(i, len), e->rw_flags = NO_WAIT;
    }
    check(batch(way) == way, "io_uring writev");
  }
  return (now() - start) / FRAMES;
}

// Fills the TAP's queue from the host.
static void fill(int len) {
  static char frame[ROOM];
  memcpy(frame, "\x02\0\0\0\0\x99\x02\0\0\0\0\x01\x88\xb5", 14);
  for (int i = 0; i < FRAMES; i++) check(send(host, frame, len, 0) == len, "send");
}

// Reads without a frame to take.
static double find_dry(void) {
  double start = now();
  for (int i = 0; i < FRAMES; i++) check(read(tap, rooms[0], ROOM) < 0 && errno == EAGAIN, "a frame is left");
  return (now() - start) / FRAMES;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print(const char *direction, int len, const char *way, double *all, int rounds) {
  qsort(all, rounds, sizeof *all, order);
  printf("%-9s %4d B  %-19s %4.0f ns (%.0f to %.0f)\n", direction, len, way, all[rounds / 2], all[rounds / 10],
         all[rounds * 9 / 10]);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 300, size = VNET, on = 1;
  struct ifreq request = {.ifr_name = "tap0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
  tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  check(tap >= 0 && !ioctl(tap, TUNSETIFF, &request) && !ioctl(tap, TUNSETVNETHDRSZ, &size), "tap0");
  check(!system("sysctl -qw net.ipv6.conf.tap0.disable_ipv6=1 && ip link set tap0 address 02:00:00:00:00:01 up"), "ip");
  host = socket(AF_PACKET, SOCK_RAW, 0);
  check(host >= 0 && !ioctl(host, SIOCGIFINDEX, &request), "tap0");
  struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = request.ifr_ifindex};
  check(!bind(host, (void *)&at, sizeof at), "bind");
  check(!setsockopt(host, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on), "PACKET_QDISC_BYPASS");
  memcpy(header, "\x02\0\0\0\0\x01\x02\0\0\0\0\x99\x88\xb5", 14);
  set_up_ring();
  double *found[2][LENGTH][WAY], *dry = calloc(rounds, sizeof(double));
  for (int i = 0; i < 2 * LENGTH * WAY; i++) (&found[0][0][0])[i] = calloc(rounds, sizeof(double));
  for (int round = 0; round < rounds; round++) {
    dry[round] = find_dry();
    for (int l = 0; l < LENGTH; l++)
      for (int i = 0; i < WAY; i++) {
        int w = (i + round) % WAY;
        fill(LENGTHS[l]);
        found[0][l][w][round] = take(WAYS[w]);
        if (WAYS[w] != MULTISHOT) found[1][l][w][round] = give(WAYS[w], LENGTHS[l]);
      }
  }
  for (int d = 0; d < 2; d++)
    for (int l = 0; l < LENGTH; l++)
      for (int w = 0; w < WAY - d; w++) {
        char way[32] = "a call a frame";
        if (WAYS[w] == MULTISHOT) strcpy(way, "io_uring multishot");
        if (WAYS[w] > 0) snprintf(way, sizeof way, "io_uring, %d a call", WAYS[w]);
        print(d ? "to host" : "from host", LENGTHS[l] + 4, way, found[d][l][w], rounds);
      }
  print("from host", 0, "no frame", dry, rounds);
}

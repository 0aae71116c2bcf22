/* Pieces that go through rings of slots: src/shm/calls/streams.cpp, Execution::stream in execution.cpp, swap.h.
 *
 * Three kinds of rings, each with its own macros. RANKS 2: a ring for one peer. RANKS 3: the ring for everybody.
 * SWAP: two ranks that fill each other's slots. HANDS_BACK: readers write lines of slots that they have emptied.
 * The code moves a piece of every stream by turns; here a rank moves any piece that can move, in any order.
 *
 * Between two calls lies a meeting. Here it is one number per rank: meeting.pml has the pages.
 *
 * SLOTS of a ring; PIECES that a rank may send in a call, at most; CALLS.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef PIECES
#define PIECES 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#include "waiting.pml"

byte entered[RANKS];         /* the call that a rank is in */
byte pieces[2 * RANKS];      /* what its header of that call says that it sends */
byte put[RANKS];             /* PairLine::put, or BoardHead::put_for_all */
byte taken[RANKS * RANKS];   /* PairLine::taken or taken_of_all, by reader and writer */
#define SENDS(rank) pieces[(rank) * 2 + number % 2]
#define TAKEN(reader, writer) taken[(reader) * RANKS + (writer)]
#define PEER ((me + step) % RANKS)

#ifdef SWAP
#define TURNS 2 /* kSwapTurns */
#define ROOM (2 * TURNS)
#define PLACES (2 * TURNS)
#ifdef PLANT_SWAPPED_SLOT
#define OWNER(writer, piece) (writer)
#else
#define OWNER(writer, piece) (((writer) + (swapped + (piece)) / TURNS) % 2)
#endif
#define PLACE(writer, piece, count) (OWNER(writer, piece) * TURNS + (swapped + (piece)) % TURNS)
/* Outgoing::has_emptied_slot: the peer's piece that lay there was taken by this rank. */
#ifdef PLANT_FILLS_UNREAD_SLOT
#define HAS_EMPTIED true
#else
#define HAS_EMPTIED (got[1 - me] >= SENDS(1 - me) || got[1 - me] + TURNS > sent)
#endif
#else
#define ROOM SLOTS
#define PLACES (RANKS * SLOTS)
#define PLACE(writer, piece, count) ((writer) * SLOTS + (count) % SLOTS)
#define HAS_EMPTIED true
#endif

byte slot[PLACES];    /* whose piece it holds, and its count; 0: half written */
byte readers[PLACES]; /* a bit per rank */
#define TAG(writer, count) ((count) * 4 + (writer) + 1)
#define HANDED_BACK 255
#define BIT(rank) (1 << (rank))
#define IS_READ_BY(rank, place) (me != rank && !dead[rank] && (readers[place] & BIT(rank)) != 0)

/* Outgoing::holds_up, Outgoing::has_room, Incoming::is_available, Execution::can_step and blockers */
#ifdef PLANT_REUSES_WITHOUT_WAITING
#define HOLDS_UP(reader) (reader != me && put[me] - TAKEN(reader, me) >= ROOM + 1)
#else
#define HOLDS_UP(reader) (reader != me && put[me] - TAKEN(reader, me) >= ROOM)
#endif
#define IS_AWAITED(writer) (writer != me && got[writer] < SENDS(writer))
#define IS_AVAILABLE(writer) (put[writer] > TAKEN(me, writer))
#define CAN_TAKE(writer) (IS_AWAITED(writer) && IS_AVAILABLE(writer))
#define IS_BLOCKED_BY(peer) \
  ((IS_AWAITED(peer) && !IS_AVAILABLE(peer)) || (sent < SENDS(me) && HOLDS_UP(peer)))
#if RANKS == 2
#define IS_READ(place) (IS_READ_BY(0, place) || IS_READ_BY(1, place))
#define IS_HELD_UP (HOLDS_UP(0) || HOLDS_UP(1))
#define CAN_TAKE_ANY (CAN_TAKE(0) || CAN_TAKE(1))
#define AWAITS_ANY (IS_AWAITED(0) || IS_AWAITED(1))
#define BLOCKER_IS_GONE (IS_BLOCKED_BY(1 - me) && IS_GONE(1 - me))
#else
#define IS_READ(place) (IS_READ_BY(0, place) || IS_READ_BY(1, place) || IS_READ_BY(2, place))
#ifdef PLANT_WAITS_FOR_ONE_READER
#define IS_HELD_UP HOLDS_UP((me + 1) % 3)
#else
#define IS_HELD_UP (HOLDS_UP(0) || HOLDS_UP(1) || HOLDS_UP(2))
#endif
#define CAN_TAKE_ANY (CAN_TAKE(0) || CAN_TAKE(1) || CAN_TAKE(2))
#define AWAITS_ANY (IS_AWAITED(0) || IS_AWAITED(1) || IS_AWAITED(2))
#define FIRST (me == 0)      /* the first peer by rank */
#define SECOND (2 - (me == 2))
#define FIRST_IS_GONE (IS_BLOCKED_BY(FIRST) && IS_GONE(FIRST))
#ifdef PLANT_LOOKS_AT_ONE
#define SECOND_IS_GONE (!IS_BLOCKED_BY(FIRST) && IS_BLOCKED_BY(SECOND) && IS_GONE(SECOND))
#else
#define SECOND_IS_GONE (IS_BLOCKED_BY(SECOND) && IS_GONE(SECOND))
#endif
#define BLOCKER_IS_GONE (FIRST_IS_GONE || SECOND_IS_GONE)
#endif
#define CAN_PUT (sent < SENDS(me) && HAS_EMPTIED && !IS_HELD_UP)
#define CAN_STEP (CAN_PUT || CAN_TAKE_ANY)
#define IS_STREAMED (sent == SENDS(me) && !AWAITS_ANY)

/* Incoming::is_last_reader, of three ranks: whether the other reader of the slot has read it. */
#if RANKS == 2 || defined(PLANT_HANDS_BACK_UNREAD)
#define IS_LAST_READER true
#else
#define IS_LAST_READER (TAKEN(3 - me - from, from) > TAKEN(me, from))
#endif

/* Outgoing::put */
inline put_piece() {
  atomic {
    place = PLACE(me, sent, put[me]);
    assert(!IS_READ(place));
    slot[place] = 0
  };
#ifdef PLANT_PUTS_EARLY
  put[me]++;
  atomic { slot[place] = TAG(me, put[me] - 1); sent++; place = 0 }
#else
  slot[place] = TAG(me, put[me]);
  atomic { put[me]++; sent++; place = 0 }
#endif
}

/* Incoming::take and done: the copy, the lines handed back, the count. What a rank will fill itself it need not hand
 * back, so it may leave that out. */
inline take_piece() {
  atomic {
    place = PLACE(from, got[from], TAKEN(me, from));
    readers[place] = readers[place] | BIT(me);
    assert(slot[place] == TAG(from, TAKEN(me, from)))
  };
#ifdef PLANT_TAKES_EARLY
  atomic { TAKEN(me, from)++; assert(slot[place] == TAG(from, TAKEN(me, from) - 1)) };
#endif
  atomic {
#ifdef PLANT_TAKES_EARLY
    assert(slot[place] == TAG(from, TAKEN(me, from) - 1));
#else
    assert(slot[place] == TAG(from, TAKEN(me, from)));
#endif
    readers[place] = readers[place] & ~BIT(me)
  };
#ifdef PLANT_HANDS_BACK_LATE
  TAKEN(me, from)++;
#endif
#ifdef HANDS_BACK
  if
  :: IS_LAST_READER -> atomic { assert(!IS_READ(place)); slot[place] = HANDED_BACK }
#if RANKS == 2
  :: skip
#else
  :: !IS_LAST_READER -> skip
#endif
  fi;
#endif
#if !defined(PLANT_TAKES_EARLY) && !defined(PLANT_HANDS_BACK_LATE)
  TAKEN(me, from)++;
#endif
  atomic { got[from]++; from = 0; place = 0 }
}

inline forget_call() {
  sent = 0; from = 0; place = 0; step = 0; got[0] = 0; got[1] = 0;
#if RANKS == 3
  got[2] = 0;
#endif
  skip
}

proctype rank(byte me) {
  byte number, swapped, sent, from, place, step, how, who;
  byte got[RANKS];
  {
    do
    :: number == CALLS -> break
    :: number < CALLS ->
       check();
       atomic {
         number++;
         if
         :: SENDS(me) = 0
#if RANKS == 2
         :: SENDS(me) = 1
#endif
         :: SENDS(me) = (me == 2 -> 1 : PIECES)
         fi
       };
       entered[me] = number;
       step = 1;
       do
       :: step < RANKS -> until(entered[PEER] >= number, PEER); step++
       :: else -> break
       od;
       do
       :: IS_STREAMED -> break
       :: CAN_PUT -> put_piece()
       :: atomic { CAN_TAKE(0) -> from = 0 }; take_piece()
       :: atomic { CAN_TAKE(1) -> from = 1 }; take_piece()
#if RANKS == 3
       :: atomic { CAN_TAKE(2) -> from = 2 }; take_piece()
#endif
       :: !IS_STREAMED && !CAN_STEP && (ANYBODY_TELLS || BLOCKER_IS_GONE) ->
          /* Waiting::until_any: it looks once more whether it can go on, and for whom it waits */
          if
          :: CAN_STEP -> skip
          :: !CAN_STEP && ANYBODY_TELLS -> find_end(me); goto lost
          :: !CAN_STEP && IS_BLOCKED_BY((me + 1) % RANKS) && IS_GONE((me + 1) % RANKS) ->
             find_end((me + 1) % RANKS);
             goto lost
#if RANKS == 3
          :: !CAN_STEP && IS_BLOCKED_BY((me + 2) % RANKS) && IS_GONE((me + 2) % RANKS) ->
             find_end((me + 2) % RANKS);
             goto lost
#endif
          fi
#ifdef POLL
       :: !IS_STREAMED && !CAN_STEP && !ANYBODY_TELLS && !BLOCKER_IS_GONE -> skip
#endif
       od;
       atomic {
#ifdef SWAP
         /* Execution::agree_on_slots: both ranks count the larger number */
#ifdef PLANT_COUNTS_OWN
         swapped = swapped + sent;
#else
         swapped = swapped + (sent > got[1 - me] -> sent : got[1 - me]);
#endif
#endif
         forget_call()
       }
    od;
    leave(false);
    goto over;

  lost:
    lose();
    atomic { forget_call(); number = 0; swapped = 0; how = 0; who = 0 };
    if
    :: goto end_stays
    :: leave(true)
    fi;
    goto over;
  end_stays:
    false;
  over:
    atomic { number = 0; swapped = 0 }
  } unless {
    dead[me] -> atomic { forget_call(); number = 0; swapped = 0; how = 0; who = 0 }
  }
}

init {
  atomic {
    run rank(0);
    run rank(1);
#if RANKS == 3
    run rank(2);
#endif
  }
}

/* Calls of a group that are one meeting each: what a rank says, hears, takes and gives back.
 *
 * Modelled: SharedGroup::run_one, goes_on, guarded, tell_apart and ~SharedGroup (group.cpp); publish, enter, meet,
 * hand_back_payload, say_read, await_reader (header.cpp); Execution::finish and ContiguousExecution::leave, for inputs
 * beside the header and in the arena. An input inside the header's page is written and read with the page's bytes.
 * Rings are the subject of rings.pml.
 *
 * A write of bytes is two steps, and so is a read: in between the bytes are half written, or half read. What bytes
 * hold is a tag: the call they were written for, and by whom. A rank scrubs its page and its payload of the call
 * before as soon as it may: when all have entered this one. The code writes them later, in the next call.
 *
 * CALLS   calls of the user; one more number is taken where ranks are in different calls
 * SWAP    two ranks that swap payloads and hand back (group_state.h)
 * ARENA   inputs may lie in the arena
 * MARKS   ranks may be in different calls
 * NOTES   ranks may have a problem, and refuse
 * LEAVES  a rank may leave before any call
 */
#ifndef CALLS
#define CALLS 3
#endif
#include "waiting.pml"

#define TELLING 3 /* kTelling in group.cpp */
#define PACKED 0  /* Path in board.h */
#define IN_ARENA 1

#define GOES_ON 1 /* verdicts */
#define REFUSED 2
#define OTHER_CALL 3

typedef Page {
  byte number; /* Header::number, the flag */
  byte bytes;  /* 0 while the page is being written, then the number */
  byte mark;
  bit path
};
typedef Board {
  Page page[2];
  byte finished
};
Board board[RANKS];
byte payload[2 * RANKS]; /* in the sections, two places each */
bit note[2 * RANKS];     /* what the payload there says: whether its writer has a problem */
byte readers[2 * RANKS]; /* of a payload, a bit per rank */
byte tensor[RANKS];      /* the call for which it was filled; 0: it holds something else */
byte verdict[2];         /* by the parity of the number: what the first rank found, for which number and user's call */

#ifdef PLANT_ONE_PAGE
#define PAGE(number) 0
#else
#define PAGE(number) ((number) % 2)
#endif
#define PEER ((me + step) % RANKS)
#define HIS(field) board[PEER].page[PAGE(number)].field
#define MINE(field) board[me].page[PAGE(number)].field

/* GroupState::payload_board, Payloads::place. payloads.pml has the places of payloads of many sizes. */
#ifdef SWAP
#ifdef PLANT_OWN_SECTION
#define PLACE(rank, number) ((rank) * 2)
#else
#define PLACE(rank, number) (((rank) + (number)) % 2 * 2)
#endif
#else
#define PLACE(rank, number) ((rank) * 2 + PAGE(number))
#endif

#define TAG(rank, number) ((number) * 4 + (rank) + 1)
#define HANDED_BACK 255
#define BIT(rank) (1 << (rank))

/* Nobody else reads a payload that is written. A rank that was killed reads nothing. */
#define IS_READ_BY(rank, place) (me != rank && !dead[rank] && (readers[place] & BIT(rank)) != 0)
#if RANKS == 2
#define IS_READ(place) (IS_READ_BY(0, place) || IS_READ_BY(1, place))
#else
#define IS_READ(place) (IS_READ_BY(0, place) || IS_READ_BY(1, place) || IS_READ_BY(2, place))
#endif

/* A packed input, or a note: nothing may change it while it is read. */
inline read_payload() {
  atomic {
    readers[PLACE(PEER, number)] = readers[PLACE(PEER, number)] | BIT(me);
    assert(payload[PLACE(PEER, number)] == TAG(PEER, number))
  };
  atomic {
    assert(payload[PLACE(PEER, number)] == TAG(PEER, number));
    readers[PLACE(PEER, number)] = readers[PLACE(PEER, number)] & ~BIT(me)
  }
}

/* publish, enter: payload and page first, the number last. */
inline publish() {
  atomic {
    assert(!IS_READ(PLACE(me, number)));
    payload[PLACE(me, number)] = 0;
    MINE(bytes) = 0
  };
#ifdef PLANT_ENTERS_EARLY
  MINE(number) = number;
#endif
  atomic {
    MINE(mark) = mark;
    MINE(path) = path;
    MINE(bytes) = number;
    payload[PLACE(me, number)] = TAG(me, number);
    note[PLACE(me, number)] = problem
  };
  MINE(number) = number
}

/* meet: waits for each peer in turn and compares marks. */
inline meet() {
  is_one_call = true;
  step = 1;
  do
  :: step < RANKS ->
     until(HIS(number) >= number, PEER);
     atomic {
       assert(HIS(bytes) == number);
       is_one_call = is_one_call && HIS(mark) == mark;
       step++
     }
  :: else -> break
  od;
#ifndef PLANT_ONE_PAGE
  atomic {
    board[me].page[1 - PAGE(number)].bytes = 0;
    board[me].page[1 - PAGE(number)].mark = 0;
    board[me].page[1 - PAGE(number)].path = 0;
#ifndef SWAP
    assert(!IS_READ(PLACE(me, number + 1)));
    payload[PLACE(me, number + 1)] = 0;
    note[PLACE(me, number + 1)] = 0;
#endif
    skip
  }
#endif
}

/* Every rank that comes to a verdict comes to the same, by the same number, in the same call of the user. */
inline come_to(found) {
  atomic {
    assert(verdict[number % 2] / 16 != number || verdict[number % 2] == number * 16 + user_call * 4 + found);
    verdict[number % 2] = number * 16 + user_call * 4 + found;
    assert(found == GOES_ON || !has_written)
  }
}

/* Waiting::check_peer, of a peer whose tensor is read. It cannot have left in order: it waits for this reader. */
inline look_at_owner() {
  atomic {
    if
    :: ended[PEER] != NONE ->
       LOOK_AT(PEER);
       how = ended[PEER];
       who = blamed[PEER];
       assert(how != LEFT || who != PEER);
       goto lost
    :: else -> skip
    fi
  }
}

inline forget_call() {
  mark = 0; problem = 0; path = 0; step = 0; is_one_call = 0; is_refused = 0; reads_directly = 0; is_torn = 0;
  has_written = 0
}

proctype rank(byte me) {
  byte number, user_call, mark, step, how, who;
  bit problem, path;
  bool is_one_call, is_refused, reads_directly, is_torn, has_written;
  {
    do
    :: user_call == CALLS -> break
#ifdef LEAVES
    :: user_call < CALLS -> break
#endif
    :: user_call < CALLS ->
       check();
       atomic {
         user_call++;
         number++;
         mark = 1;
#ifdef MARKS
         if
         :: mark = 2
         :: skip
         fi;
#endif
#ifdef NOTES
         if
         :: problem = 1
         :: skip
         fi;
#endif
#ifdef ARENA
         if
         :: path = IN_ARENA; tensor[me] = user_call /* the user fills it: nobody reads it any more */
         :: skip
         fi;
#endif
         skip
       };
       publish();
#ifdef PLANT_READS_BEHIND_ENTER
       assert(user_call == 1 || payload[PLACE((me + 1) % RANKS, number - 1)] == TAG((me + 1) % RANKS, number - 1));
#endif
       meet();
#ifdef MARKS
       if
       :: !is_one_call ->
          come_to(OTHER_CALL);
#ifdef PLANT_ONE_SIDE_TELLS
          if
          :: mark == 1 -> goto next_call
          :: else -> skip
          fi;
#endif
          /* tell_apart: one more call, in which every rank says what it meant */
          atomic { number++; mark = TELLING };
          publish();
          meet();
          assert(is_one_call);
          step = 1;
          do
          :: step < RANKS -> read_payload(); step++
          :: else -> break
          od;
          goto next_call
       :: else -> skip
       fi;
#endif
#ifdef NOTES
       /* goes_on: the notes are copied, then compared */
       atomic { is_refused = problem; step = 1 };
       do
       :: step < RANKS ->
          read_payload();
#ifdef PLANT_VERDICT_AFTER_BYTE
          has_written = true;
#endif
#ifdef PLANT_HEARS_ONE
          atomic { is_refused = is_refused || (step == 1 && note[PLACE(PEER, number)]); step++ }
#else
          atomic { is_refused = is_refused || note[PLACE(PEER, number)]; step++ }
#endif
       :: else -> break
       od;
       if
       :: is_refused -> come_to(REFUSED); goto next_call
       :: else -> skip
       fi;
#endif
       come_to(GOES_ON);
#ifdef PLANT_SAYS_READ_EARLY
       board[me].finished = number;
#endif
       /* hear, then copy: every peer's input */
       atomic { step = 1; has_written = true };
       do
       :: step < RANKS ->
          assert(HIS(bytes) == number);
          if
          :: HIS(path) == PACKED ->
             read_payload()
          :: HIS(path) == IN_ARENA ->
             /* A tensor may change under a reader whose owner has raised: then the reader must raise too. */
#ifdef PLANT_LOOKS_BEFORE_READING
             look_at_owner();
#endif
             atomic { reads_directly = true; is_torn = is_torn || tensor[PEER] != user_call };
             is_torn = is_torn || tensor[PEER] != user_call;
#if !defined(PLANT_NO_LOOK_AFTER_READING) && !defined(PLANT_LOOKS_BEFORE_READING)
             look_at_owner();
#endif
             skip
          fi;
          step++
       :: else -> break
       od;
#ifdef SWAP
       /* hand_back_payload: where the peer sent more than this rank */
       if
       :: atomic {
            assert(!IS_READ(PLACE(1 - me, number)));
            payload[PLACE(1 - me, number)] = HANDED_BACK
          }
       :: skip
       fi;
#endif
       if
       :: reads_directly -> board[me].finished = number
       :: else -> skip
       fi;
#ifndef PLANT_NO_AWAIT_READER
       if
       :: path == IN_ARENA ->
          step = 1;
          do
          :: step < RANKS -> until(board[PEER].finished >= number, PEER); step++
          :: else -> break
          od
       :: else -> skip
       fi;
#endif
       assert(!is_torn);
    next_call: /* the call returns or throws, and its input is the user's again */
       atomic { tensor[me] = 0; forget_call() }
    od;
    leave(false);
    goto over;

  lost:
    lose();
    atomic { tensor[me] = 0; forget_call(); how = 0; who = 0; number = 0; user_call = 0 };
    if
    :: goto end_stays
    :: leave(true)
    fi;
    goto over;
  end_stays: /* a rank need not destroy a group that is over */
    false;
  over:
    atomic { number = 0; user_call = 0 }
  } unless {
    dead[me] -> atomic { forget_call(); number = 0; user_call = 0; how = 0; who = 0 }
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

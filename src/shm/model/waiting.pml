/* How a rank waits, learns that a peer is gone, and tells it on: src/shm/board/waiting.h and waiting.cpp.
 *
 * Every model of a call includes this file. It needs RANKS, and a proctype whose variables are `me`, `how` and
 * `who` and which has a label `lost`. DEATHS, GIVE_UPS say how often a rank may be killed, or give up a wait.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 0
#endif

#define NONE 0      /* End in board.h */
#define LEFT 1
#define DIED 2
#define TIMED_OUT 3 /* stands for every end by a rank's own will in the middle of a call: see GIVE_UPS */

/* BoardHead::ended of each rank, in two parts. Stored once, in one step: it is one word. */
byte ended[RANKS];
byte blamed[RANKS];

/* What the processes themselves are, which no rank sees but through a process handle. */
bool dead[RANKS];
bool has_left[RANKS];      /* of its own accord: it had not raised before */
bool has_given_up[RANKS];
byte deaths;
byte give_ups;

/* A board lies in its rank's arena. These say when it may be looked at: retired.cpp. */
bool gone[RANKS];
bool freed[RANKS];

#define LOOK_AT(peer) assert(!freed[peer]) /* every look at a peer's board */

/* Waiting::find_end, first loop: what a board says ends the group, unless it is only that its rank has left. A
 * rank that raised because another had left says LEFT too, and names the other. */
#ifdef PLANT_MISNAMES_LEAVER
#define TELLS(peer) (me != peer && ended[peer] != NONE && ended[peer] != LEFT)
#else
#define TELLS(peer) (me != peer && ended[peer] != NONE && !(ended[peer] == LEFT && blamed[peer] == peer))
#endif
#if RANKS == 2
#define ANYBODY_TELLS (TELLS(0) || TELLS(1))
#else
#define ANYBODY_TELLS (TELLS(0) || TELLS(1) || TELLS(2))
#endif

/* Waiting::find_end_among, of one peer: its process handle is readable, or it has left. */
#ifdef PLANT_NO_DEATH_CHECK
#define IS_GONE(peer) (ended[peer] == LEFT)
#else
#define IS_GONE(peer) (dead[peer] || ended[peer] == LEFT)
#endif

/* What a wait for `peer` ends with. The code looks at the boards one after the other, then at the peer's process;
 * boards may change in between. Here any of the answers that there are may be the one. */
inline find_end(peer) {
  atomic {
    if
    :: TELLS(0) -> how = ended[0]; who = blamed[0]
    :: TELLS(1) -> how = ended[1]; who = blamed[1]
#if RANKS == 3
    :: TELLS(2) -> how = ended[2]; who = blamed[2]
#endif
    :: dead[peer] -> how = DIED; who = peer
#ifdef PLANT_MISNAMES_LEAVER
    :: ended[peer] == LEFT -> how = LEFT; who = peer
#else
    :: ended[peer] == LEFT -> how = LEFT; who = blamed[peer]
#endif
    fi
  }
}

/* Waiting::until. A rank sleeps and wakes by itself every 50 ms, so this waits for nothing but the condition and
 * the end: whether a bell is missed is the subject of bell.pml. Patience::step looks once more for the condition
 * when it has seen an end: what the peer did before its end is visible by then. */
inline until(ready, peer) {
  do
  :: ready -> LOOK_AT(peer); break
  :: ANYBODY_TELLS || IS_GONE(peer) ->
     LOOK_AT(peer);
#ifndef PLANT_NO_SECOND_LOOK
     if
     :: ready -> break
     :: else -> skip
     fi;
#endif
     find_end(peer);
#if RANKS == 2
     assert(!(ready)); /* no call fails for want of what is there */
#endif
     goto lost
  :: give_ups < GIVE_UPS && !(ready) -> /* a time-out, an interrupt, an abort by another thread */
     atomic { give_ups++; has_given_up[me] = true; how = TIMED_OUT; who = peer };
     goto lost
#ifdef POLL
  :: !(ready) && !ANYBODY_TELLS && !IS_GONE(peer) -> skip
#endif
  od
}

/* Waiting::check: before a call, all boards. Whatever a board says ends the group here, that its rank has left too.
 * It looks at no process handle. */
#define SAYS_END(peer) (me != peer && ended[peer] != NONE)
inline check() {
  atomic {
    if
    :: SAYS_END(0) -> LOOK_AT(0); how = ended[0]; who = blamed[0]; goto lost
    :: SAYS_END(1) -> LOOK_AT(1); how = ended[1]; who = blamed[1]; goto lost
#if RANKS == 3
    :: SAYS_END(2) -> LOOK_AT(2); how = ended[2]; who = blamed[2]; goto lost
#endif
    :: else -> skip
    fi
  }
}

/* Waiting::lose and end: the first reason stays. An error names a rank that is what the error says. */
inline lose() {
  atomic {
    assert(how != DIED || dead[who]);
    assert(how != LEFT || has_left[who]);
    assert(how != TIMED_OUT || give_ups > 0);
#ifndef PLANT_RAISES_SILENTLY
    if
    :: ended[me] == NONE -> ended[me] = how; blamed[me] = who
    :: else -> skip
    fi
#endif
  }
}

#if RANKS == 2
#define ALL_OTHERS_GONE (gone[1 - me] || dead[1 - me])
#else
#define ALL_OTHERS_GONE ((gone[(me + 1) % 3] || dead[(me + 1) % 3]) && (gone[(me + 2) % 3] || dead[(me + 2) % 3]))
#endif

/* SharedGroup::~SharedGroup, retire. Its last look at peers' boards is for their sleepers (Waiting::ring). Then the
 * rank is gone, and frees its board once nobody looks at it any more (Retired::is_over). */
inline leave(has_raised) {
  atomic {
    has_left[me] = !has_raised;
    if
    :: ended[me] == NONE -> ended[me] = LEFT; blamed[me] = me
    :: else -> skip
    fi
  };
#ifdef PLANT_GONE_EARLY
  gone[me] = true;
#endif
  LOOK_AT((me + 1) % RANKS);
  LOOK_AT((me + RANKS - 1) % RANKS);
  gone[me] = true;
end_sweep:
#ifdef PLANT_FREES_WHEN_ENDED
  (ended[(me + 1) % RANKS] != NONE && ended[(me + RANKS - 1) % RANKS] != NONE) -> freed[me] = true
#else
  ALL_OTHERS_GONE -> freed[me] = true
#endif
}

#ifdef POLL
/* A rank that is not killed leaves or raises in the end, if every process that can go on does so at some time. */
#define IS_OVER(rank) (dead[rank] || ended[rank] != NONE)
ltl ends { <>(IS_OVER(0) && IS_OVER(1)) }
#endif

/* A rank is killed between any two steps. Its process handle is readable from then on. */
active proctype killer() {
end_kill:
  do
  :: atomic {
       deaths < DEATHS ->
       deaths++;
       if
       :: !dead[0] -> dead[0] = true
       :: !dead[1] -> dead[1] = true
#if RANKS == 3
       :: !dead[2] -> dead[2] = true
#endif
       fi
     }
  od
}

/* Rows that change nodes between two fragments, and then go to the caller: 2 senders that may have rows
 * for either of 2 receivers, over channels that hold CAP rows each, and merges by tag at the
 * receivers and at the caller (ordstream/fragments/channels.py, merging.py, live_node.py). A row is
 * its tag, 1..N: the source gives them out in order, to any sender, for any receiver. A low says that
 * nothing below it comes any more. Lows are always heard: sockets are always read (wire.py); what can
 * make a sender wait is a channel without credit.
 *
 * Sender s and receiver s are in one process, where an answer (a row was handed on, so there is credit for
 * another one) comes at once. Between processes, and from the caller, a receiver keeps answers until they
 * are LATE rows (endpoint.py), or until something else is said to that process: rows or a low of its own
 * sender, or a row of the source.
 *
 * With FAILS=n, up to n of the four nodes fail, each at any of its rows. A failed node says to its receivers
 * that its rows end there, as a low that stays, and drops what still comes. A node in front of which rows
 * end does the same, as does the caller, who stops the source as soon as it hears of a failure. With CANCEL
 * the caller leaves at any point, and all others hear of it wherever they wait.
 *
 * With AHEAD=n the source waits while the caller does not know that what is more than n rows back is settled
 * (driver.py, MARKS_AHEAD, where a mark of the clock stands for each row: marks have no credit).
 *
 * Checked: order at the receivers and at the caller, everything arrives (every row in front of the first
 * failure and none behind it), no invalid end state (no deadlock).
 * Mutants: WITH_ROWS   a low travels only with rows: a receiver that gets none hears nothing
 *          NO_IDLE     a sender without rows does not tell how far the source is
 *          KEPT_BACK   only something else that is said takes answers along: they never are enough
 *          SHARED      a receiver has one buffer for all its senders: rows that are ahead fill it
 *          EAGER       a low runs ahead of a row that the sender holds (order)
 *          NO_LAST     the end of a sender is no low
 *          CALLER_KEEPS   the caller takes no more rows once its output ends at a failure
 *          NODE_KEEPS     nor does a node
 *          NO_STOP        the source goes on behind a failure
 *          NO_CUT         a failed node ends as at the end of the stream
 *          PASSED_ON      a node does not pass on that rows end in front of it
 *          DEAF           who waits for credit does not hear that the run is over
 */
#ifndef N
#define N 5
#endif
#ifndef CAP
#define CAP 1
#endif
#ifdef KEPT_BACK
#define LATE (CAP + 1)
#endif
#ifndef LATE
#define LATE 1        /* at most CAP: a channel with nothing on it then has credit */
#endif
#define END (N + 1)
#ifndef FAILS
#define FAILS 0
#endif

byte given = 1;       /* the next row of the source */
byte owner = 0;       /* who gets it: 1 or 2; 0: not chosen yet */
/* channel k leads from sender k / 2 to receiver k % 2; channel 4 + r from receiver r to the caller */
chan rows[6] = [CAP] of { byte };
byte low[6];          /* as the receiver knows it */
byte kept[6];         /* rows that were handed on, and not answered yet */
byte seen[3];         /* the last row of each receiver, and of the caller */
bool ended[6];        /* nothing comes over this channel any more; its low stays */
byte fails = FAILS;   /* failures that are still to come */
byte first = END;     /* the first row that failed */
byte got = 0;         /* rows that the caller gave */
bool stop = false;    /* the source gives no more */
bool cancelled = false;

#ifdef AHEAD
#define GIVES (given <= LOWER(low[4], low[5]) + AHEAD)
#else
#define GIVES true
#endif
#define LOWER(x, y) ((x) < (y) -> (x) : (y))

/* the first row on a channel, or END: kept beside it, so that guards can look at it */
byte head[6] = END;

/* Channels 1 and 2 lead from one process to the other: what goes over one takes answers of the other
 * along. */
inline said(k)
{
    if
    :: k == 1 -> kept[2] = 0
    :: k == 2 -> kept[1] = 0
    :: else
    fi
}

inline raise(k, to)
{
    if
    :: low[k] < to -> low[k] = to; said(k)
    :: else
    fi
}

inline put(k, row)
{
    rows[k] ! row;
    if
    :: head[k] == END -> head[k] = row
    :: else
    fi;
    said(k);
    raise(k, row + 1)
}

inline pop(k, row)
{
    rows[k] ? row;
    if
    :: len(rows[k]) > 0 -> rows[k] ? <head[k]>
    :: else -> head[k] = END
    fi;
    if
    :: k == 0 || k == 3 || kept[k] + 1 >= LATE -> kept[k] = 0
    :: else -> kept[k]++
    fi
}

#define TO_CALLER(me) (len(rows[4 + me]) + kept[4 + me] < CAP)
#ifdef SHARED
#define CREDIT(s, r) (len(rows[r]) + len(rows[2 + r]) < CAP)
#else
#define CREDIT(s, r) (len(rows[2 * s + r]) + kept[2 * s + r] < CAP)
#endif

#if FAILS
#define FAILED(may, row) atomic { may && fails > 0 -> fails--; if :: row < first -> first = row :: else fi; \
                                  cut = row; goto over }
#endif
#ifdef NO_CUT
#define CUT END + 1
#else
#define CUT cut
#endif

proctype sender(byte s)
{
    byte row, r, cut;
    do
    :: atomic { given <= N && owner == 0 && !stop && GIVES -> if :: owner = 1 :: owner = 2 fi }
    :: atomic {
        given <= N && owner == s + 1 && !stop ->
        row = given;
        given++;
        owner = 0;
        kept[4 + s] = 0;    /* the caller says something to this process */
        if :: r = 0 :: r = 1 fi
       };
        /* it holds the row: nothing below it comes */
#ifdef EAGER
        atomic { raise(2 * s, given); raise(2 * s + 1, given) };
#else
#ifndef WITH_ROWS
        atomic { raise(2 * s, row); raise(2 * s + 1, row) };
#endif
#endif
#if FAILS
        if
        :: FAILED(true, row)
        :: skip
        fi;
#endif
        if
        :: atomic { CREDIT(s, r) -> put(2 * s + r, row); row = 0; r = 0 }
#ifndef DEAF
        :: cancelled -> goto done
#endif
        fi
#ifndef WITH_ROWS
#ifndef NO_IDLE
    :: atomic { !stop && (low[2 * s] < given || low[2 * s + 1] < given) ->
                raise(2 * s, given); raise(2 * s + 1, given) }
#endif
#endif
    :: atomic { given > N -> cut = END + 1; break }
    :: atomic { given <= N && stop -> cut = given; break }
    :: cancelled -> goto done
    od;
#ifndef NO_LAST
    atomic { low[2 * s] = cut; low[2 * s + 1] = cut; ended[2 * s] = true; ended[2 * s + 1] = true;
             said(1 + s) }
#endif
#if FAILS
    goto done;
over:
    atomic { low[2 * s] = CUT; low[2 * s + 1] = CUT; ended[2 * s] = true; ended[2 * s + 1] = true;
             said(1 + s) }
#endif
done:
    skip
}

#define FRONT LOWER(head[a], head[b])
#define BOUND LOWER(low[a], low[b])

/* Merges channels a and b: receivers 0 and 1, and the caller (2). */
proctype merge(byte me; byte a; byte b)
{
    byte row, cut;
    do
    :: atomic {
        FRONT <= N && FRONT < BOUND ->
        if
        :: head[a] < head[b] -> pop(a, row)
        :: else -> pop(b, row)
        fi;
        assert(row > seen[me]);
        seen[me] = row;
        if
        :: me < 2 -> raise(4 + me, row)    /* it holds the row, also where the caller has no room */
        :: else -> row = 0; got++
        fi
       };
#if FAILS
        if
        :: FAILED(me < 2, row)
        :: skip
        fi;
#endif
        if
        :: me < 2 ->
            if
            :: atomic { TO_CALLER(me) -> put(4 + me, row); row = 0 }
#ifndef DEAF
            :: cancelled -> goto done
#endif
            fi
        :: else
        fi
    :: atomic { me < 2 && BOUND <= END && low[4 + me] < LOWER(FRONT, BOUND) ->
                low[4 + me] = LOWER(FRONT, BOUND) }
    :: atomic { FRONT == END && BOUND > END -> break }
#if FAILS
#ifndef PASSED_ON
    :: atomic { BOUND <= FRONT && BOUND <= END &&
                ((ended[a] && low[a] == BOUND) || (ended[b] && low[b] == BOUND)) -> cut = BOUND; goto over }
#endif
#ifndef NO_STOP
    :: atomic { me == 2 && first < END && !stop -> stop = true }    /* whenever it hears of it */
#endif
#endif
#ifdef CANCEL
    :: atomic { me == 2 && !cancelled -> cancelled = true; goto done }
    :: me < 2 && cancelled -> goto done
#endif
    od;
    if
    :: me < 2 -> atomic { low[4 + me] = END + 1; ended[4 + me] = true }
    :: else -> assert(seen[2] == N && seen[0] <= N && got == N && first == END)
    fi;
#if FAILS
    goto done;
over:
    if
    :: atomic { me < 2 -> low[4 + me] = CUT; ended[4 + me] = true }
    :: atomic {
        else ->
        assert(got == first - 1 && seen[2] == got);
#ifndef NO_STOP
        stop = true
#endif
       }
    fi;
    do    /* it drops what comes */
#ifdef CALLER_KEEPS
    :: me == 2 -> break
#endif
#ifdef NODE_KEEPS
    :: me < 2 -> break
#else
    :: atomic { me < 2 && len(rows[a]) > 0 -> pop(a, row); row = 0 }
    :: atomic { me < 2 && len(rows[b]) > 0 -> pop(b, row); row = 0 }
#endif
#ifndef CALLER_KEEPS
    :: atomic { me == 2 && len(rows[a]) > 0 -> pop(a, row); row = 0 }
    :: atomic { me == 2 && len(rows[b]) > 0 -> pop(b, row); row = 0 }
#endif
    :: cancelled -> break
    :: atomic { ended[a] && ended[b] && len(rows[a]) + len(rows[b]) == 0 -> break }
    od;
#endif
done:
    skip
}

init { atomic { run sender(0); run sender(1); run merge(0, 0, 2); run merge(1, 1, 3); run merge(2, 4, 5) } }

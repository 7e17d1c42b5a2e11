; How kernels are called: the Python function `run` of a launcher, and threads that take parts of its work.
;
; `native.py` fills in what stands in <angle brackets>, compiles this where no object file of it is at hand, and
; has the structures %site and %program as ctypes structures, `Site` and `Program`.

%site = type {
  ptr,  ;  0 slow: the Python function for calls that fit no program
  ptr,  ;  1 threads: the Python function that tells how many threads are wanted
  ptr,  ;  2 the type of arrays
  i64,  ;  3 inputs
  i64,  ;  4 outputs
  ptr,  ;  5 constants
  i64,  ;  6 how many
  ptr   ;  7 the programs to look at first to last, then null; replaced as a whole, never changed
}

%program = type {
  ptr,  ;  0 the Python object that owns this memory
  i64,  ;  1 threads; 0: run by the caller, which keeps the GIL
  ptr,  ;  2 signature: of each input and output the number of axes, the shape, the strides
  ptr,  ;  3 hazards: pairs of places of arrays that must not begin at the same address
  i64,  ;  4 how many
  ptr,  ;  5 operands: the places of the arrays that the kernels get, one kernel after the other
  i64,  ;  6 how many
  ptr,  ;  7 parts
  ptr,  ;  8 phases: where each phase ends among the parts; it begins when the one before is done
  i64,  ;  9 how many
  ptr,  ; 10 claims, one for each part: the number of the job in which it was last taken
  i64,  ; 11 scratch memory of a thread, in bytes
  i64   ; 12 scratch memory that threads share
}

%part = type {
  ptr,      ; 0 kernel
  i64,      ; 1 the first of its operands
  ptr,      ; 2 plan
  [6 x i64],; 3 the span without its memory
  i64,      ; 4 where the memory for what threads share begins in that of the thread
  i64       ; 5 whether it is the memory that threads really share
}

; What a loop does in each of its turns, one action after the other.
%action = type {
  ptr,  ; 0 program, or null
  ptr,  ; 1 without one: a function of operands and the plan
  ptr,  ; 2 its plan
  i64,  ; 3 how many operands
  ptr,  ; 4 their addresses in each phase, one phase after the other, as they are in the first turns
  ptr   ; 5 by how many bytes each moves from turn to turn
}

%memory = type { ptr, i64 }  ; address and bytes of scratch memory

; The pool. A caller that holds @busy publishes one job at a time; whoever has raised @active may read the job
; while @open is 1, and the caller neither changes it nor returns before @active is 0.
@busy     = internal global i32 0, align 64
@sequence = internal global i32 0, align 64  ; the number of the job; idle workers sleep on it
@workers  = global i64 0, align 64  ; that there are
@sleepers = internal global i32 0, align 64
@open     = internal global i32 0, align 64
@active   = internal global i32 0, align 64  ; workers that look at the job; the caller sleeps on it
@waiting  = internal global i32 0, align 64  ; whether it does

@threads  = internal global [1024 x i32] zeroinitializer, align 64  ; what the system calls each worker
@cores    = internal global [1024 x i32] zeroinitializer, align 64  ; where each was last; -1: not known
@job      = internal global i32 0, align 64  ; what @sequence is once the job may be looked at
@program  = internal global ptr null
@arrays   = internal global ptr null
@first    = internal global i64 0
@last     = internal global i64 0
@common   = internal global ptr null

@kept_memory   = internal global %memory zeroinitializer, align 64  ; of callers that keep the GIL
@kept_common   = internal global %memory zeroinitializer
@caller_memory = internal global %memory zeroinitializer, align 64  ; of the one that holds @busy
@common_memory = internal global %memory zeroinitializer

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @gettid()
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_NoMemory()
declare ptr @PyErr_Occurred()
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare i64 @PyLong_AsLong(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void <pause>

@PyTuple_Type    = external global i8
@_Py_NoneStruct  = external global i8

; Nanoseconds.
define internal i64 @now() {
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %time)
  %nanoseconds_at = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %nanoseconds_at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %nanoseconds
  ret i64 %sum
}

; Wait until `word` is no longer `value`: awake for a short while, for a longer one awake as far as nobody else
; wants the core, then asleep, and counted in `sleepers`.
define internal void @wait(ptr %word, i32 %value, ptr %sleepers) {
entry:
  %start = call i64 @now()
  br label %spin
spin:
  %seen = load atomic i32, ptr %word seq_cst, align 4
  %changed = icmp ne i32 %seen, %value
  br i1 %changed, label %done, label %rest
rest:
  %time = call i64 @now()
  %spent = sub i64 %time, %start
  %short = icmp ult i64 %spent, <spin>
  br i1 %short, label %stay, label %linger
stay:
  call void <pause>
  br label %spin
linger:
  %long = icmp ugt i64 %spent, <linger>
  br i1 %long, label %tire, label %yield
yield:
  call i32 @sched_yield()
  br label %spin
tire:
  atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %look
look:
  %again = load atomic i32, ptr %word seq_cst, align 4
  %stays = icmp eq i32 %again, %value
  br i1 %stays, label %sleep, label %wake
sleep:
  call i64 (i64, ...) @syscall(i64 <futex>, ptr %word, i32 128, i32 %value, ptr null)
  br label %look
wake:
  atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %done
done:
  ret void
}

; Wake those who sleep on `word`.
define internal void @notify(ptr %word, ptr %sleepers) {
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %count, 0
  br i1 %any, label %wake, label %done
wake:
  call i64 (i64, ...) @syscall(i64 <futex>, ptr %word, i32 129, i32 2147483647)
  br label %done
done:
  ret void
}

; At least `bytes` of scratch memory, a multiple of a cache line; null when there is none.
define internal ptr @room(ptr %memory, i64 %bytes) {
  %size_at = getelementptr %memory, ptr %memory, i32 0, i32 1
  %size = load i64, ptr %size_at
  %old = load ptr, ptr %memory
  %enough = icmp uge i64 %size, %bytes
  br i1 %enough, label %kept, label %grow
kept:
  ret ptr %old
grow:
  call void @free(ptr %old)
  %new = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %failed = icmp eq ptr %new, null
  %got = select i1 %failed, i64 0, i64 %bytes
  store ptr %new, ptr %memory
  store i64 %got, ptr %size_at
  ret ptr %new
}

; Give scratch memory of more than `limit` bytes back.
define internal void @trim(ptr %memory, i64 %limit) {
  %size_at = getelementptr %memory, ptr %memory, i32 0, i32 1
  %size = load i64, ptr %size_at
  %large = icmp ugt i64 %size, %limit
  br i1 %large, label %drop, label %done
drop:
  %old = load ptr, ptr %memory
  call void @free(ptr %old)
  store %memory zeroinitializer, ptr %memory
  br label %done
done:
  ret void
}

; Call a kernel on one part.
define internal void @run_part(ptr %program, i64 %index, ptr %arrays, ptr %own, ptr %common) {
  %span = alloca [8 x i64]
  %parts_at = getelementptr %program, ptr %program, i32 0, i32 7
  %parts = load ptr, ptr %parts_at
  %part = getelementptr %part, ptr %parts, i64 %index
  %first_at = getelementptr %part, ptr %part, i32 0, i32 1
  %plan_at = getelementptr %part, ptr %part, i32 0, i32 2
  %span_at = getelementptr %part, ptr %part, i32 0, i32 3
  %offset_at = getelementptr %part, ptr %part, i32 0, i32 4
  %is_common_at = getelementptr %part, ptr %part, i32 0, i32 5
  call void @llvm.memcpy.p0.p0.i64(ptr %span, ptr %span_at, i64 48, i1 false)
  %own_at = getelementptr i64, ptr %span, i64 6
  store ptr %own, ptr %own_at
  %offset = load i64, ptr %offset_at
  %behind = getelementptr i8, ptr %own, i64 %offset
  %is_common_word = load i64, ptr %is_common_at
  %is_common = icmp ne i64 %is_common_word, 0
  %shared = select i1 %is_common, ptr %common, ptr %behind
  %shared_at = getelementptr i64, ptr %span, i64 7
  store ptr %shared, ptr %shared_at
  %kernel = load ptr, ptr %part
  %first = load i64, ptr %first_at
  %operands = getelementptr ptr, ptr %arrays, i64 %first
  %plan = load ptr, ptr %plan_at
  call i64 %kernel(ptr %operands, ptr %plan, ptr %span)
  ret void
}

; Take parts of the job, those first that thread `index` also took when the job was there before: its cache
; may still hold their data. `index` is below the number of threads.
define internal void @take(i64 %index, ptr %own) {
entry:
  %program = load ptr, ptr @program
  %arrays = load ptr, ptr @arrays
  %common = load ptr, ptr @common
  %first = load i64, ptr @first
  %last = load i64, ptr @last
  %job = load i32, ptr @job
  %claims_at = getelementptr %program, ptr %program, i32 0, i32 10
  %claims = load ptr, ptr %claims_at
  %threads_at = getelementptr %program, ptr %program, i32 0, i32 1
  %threads = load i64, ptr %threads_at
  %count = sub i64 %last, %first
  %product = mul i64 %count, %index
  %share = udiv i64 %product, %threads
  %home = add i64 %first, %share
  br label %walk
walk:
  %part = phi i64 [ %home, %entry ], [ %following, %step ]
  %walked = phi i64 [ 0, %entry ], [ %further, %step ]
  %more = icmp slt i64 %walked, %count
  br i1 %more, label %claim, label %done
claim:
  %claim_at = getelementptr i32, ptr %claims, i64 %part
  %before = atomicrmw xchg ptr %claim_at, i32 %job seq_cst
  %taken = icmp eq i32 %before, %job
  br i1 %taken, label %step, label %work
work:
  call void @run_part(ptr %program, i64 %part, ptr %arrays, ptr %own, ptr %common)
  br label %step
step:
  %further = add i64 %walked, 1
  %after = add i64 %part, 1
  %end = icmp eq i64 %after, %last
  %following = select i1 %end, i64 %first, i64 %after
  br label %walk
done:
  ret void
}

; A worker: the body of thread `index`, which is 1 or more. It never returns.
define void @work(i64 %index) {
entry:
  %memory = alloca %memory
  %signals = alloca [16 x i64]
  store %memory zeroinitializer, ptr %memory
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  call i32 @pthread_sigmask(i32 0, ptr %signals, ptr null)
  %thread_at = getelementptr i32, ptr @threads, i64 %index
  %core_at = getelementptr i32, ptr @cores, i64 %index
  %thread = call i32 @gettid()
  store i32 %thread, ptr %thread_at
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %job, %leave ], [ %job, %notify ]
  %core = call i32 @sched_getcpu()
  store i32 %core, ptr %core_at
  call void @wait(ptr @sequence, i32 %seen, ptr @sleepers)
  %job = load atomic i32, ptr @sequence seq_cst, align 4
  atomicrmw add ptr @active, i32 1 seq_cst
  %open_word = load atomic i32, ptr @open seq_cst, align 4
  %open = icmp ne i32 %open_word, 0
  br i1 %open, label %enter, label %leave
enter:
  %program = load ptr, ptr @program
  %threads_at = getelementptr %program, ptr %program, i32 0, i32 1
  %threads = load i64, ptr %threads_at
  %wanted = icmp slt i64 %index, %threads
  br i1 %wanted, label %prepare, label %leave
prepare:
  %bytes_at = getelementptr %program, ptr %program, i32 0, i32 11
  %bytes = load i64, ptr %bytes_at
  %own = call ptr @room(ptr %memory, i64 %bytes)
  %failed = icmp eq ptr %own, null
  br i1 %failed, label %leave, label %help
help:
  call void @take(i64 %index, ptr %own)
  call void @trim(ptr %memory, i64 <keep>)
  br label %leave
leave:
  %active = atomicrmw sub ptr @active, i32 1 seq_cst
  %is_last = icmp eq i32 %active, 1
  br i1 %is_last, label %notify, label %idle
notify:
  call void @notify(ptr @active, ptr @waiting)
  br label %idle
}

; Send the workers that were last on the caller's core to other cores. The system would let them share it for
; long: it sees two threads that hardly run.
define internal void @spread(i64 %threads) {
entry:
  %mask = alloca [16 x i64]
  %core = call i32 @sched_getcpu()
  br label %walk
walk:
  %index = phi i64 [ 1, %entry ], [ %next, %step ]
  %more = icmp slt i64 %index, %threads
  br i1 %more, label %look, label %done
look:
  %core_at = getelementptr i32, ptr @cores, i64 %index
  %last = load i32, ptr %core_at
  %here = icmp eq i32 %last, %core
  br i1 %here, label %move, label %step
move:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %word = udiv i32 %core, 64
  %bit = urem i32 %core, 64
  %word_at = getelementptr i64, ptr %mask, i32 %word
  %wide = zext i32 %bit to i64
  %one = shl i64 1, %wide
  %others = xor i64 %one, -1
  %before = load i64, ptr %word_at
  %after = and i64 %before, %others
  store i64 %after, ptr %word_at
  %thread_at = getelementptr i32, ptr @threads, i64 %index
  %thread = load i32, ptr %thread_at
  call i32 @sched_setaffinity(i32 %thread, i64 128, ptr %mask)
  store i32 -1, ptr %core_at
  br label %step
step:
  %next = add i64 %index, 1
  br label %walk
done:
  ret void
}

; Run the parts from `first` to `last` on all threads.
define internal void @share(ptr %program, ptr %arrays, i64 %first, i64 %last, ptr %own, ptr %common) {
entry:
  store ptr %program, ptr @program
  store ptr %arrays, ptr @arrays
  store ptr %common, ptr @common
  store i64 %first, ptr @first
  store i64 %last, ptr @last
  %before = load i32, ptr @job
  %job = add i32 %before, 1
  store i32 %job, ptr @job
  store atomic i32 1, ptr @open seq_cst, align 4
  store atomic i32 %job, ptr @sequence seq_cst, align 4
  %threads_at = getelementptr %program, ptr %program, i32 0, i32 1
  %threads = load i64, ptr %threads_at
  call void @spread(i64 %threads)
  call void @notify(ptr @sequence, ptr @sleepers)
  call void @take(i64 0, ptr %own)
  store atomic i32 0, ptr @open seq_cst, align 4
  br label %look
look:
  %active = load atomic i32, ptr @active seq_cst, align 4
  %done = icmp eq i32 %active, 0
  br i1 %done, label %end, label %wait
wait:
  call void @wait(ptr @active, i32 %active, ptr @waiting)
  br label %look
end:
  ret void
}

; Run the parts from `first` to `last` on this thread.
define internal void @run_parts(ptr %program, ptr %arrays, i64 %first, i64 %last, ptr %own, ptr %common) {
entry:
  br label %walk
walk:
  %part = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp slt i64 %part, %last
  br i1 %more, label %body, label %done
body:
  call void @run_part(ptr %program, i64 %part, ptr %arrays, ptr %own, ptr %common)
  %next = add i64 %part, 1
  br label %walk
done:
  ret void
}

; Run all phases by `how`, which is @share or @run_parts, with scratch memory from `own` and `common`.
; Returns 0, or 1 when there is no memory.
define internal i32 @run_phases(ptr %program, ptr %arrays, ptr %own, ptr %common, ptr %how, i64 %limit) {
entry:
  %phases_at = getelementptr %program, ptr %program, i32 0, i32 8
  %count_at = getelementptr %program, ptr %program, i32 0, i32 9
  %own_bytes_at = getelementptr %program, ptr %program, i32 0, i32 11
  %common_bytes_at = getelementptr %program, ptr %program, i32 0, i32 12
  %phases = load ptr, ptr %phases_at
  %count = load i64, ptr %count_at
  %own_bytes = load i64, ptr %own_bytes_at
  %common_bytes = load i64, ptr %common_bytes_at
  %own_room = call ptr @room(ptr %own, i64 %own_bytes)
  %common_room = call ptr @room(ptr %common, i64 %common_bytes)
  %no_own = icmp eq ptr %own_room, null
  %no_common = icmp eq ptr %common_room, null
  %failed = or i1 %no_own, %no_common
  br i1 %failed, label %done, label %walk
walk:
  %phase = phi i64 [ 0, %entry ], [ %next, %body ]
  %first = phi i64 [ 0, %entry ], [ %last, %body ]
  %more = icmp slt i64 %phase, %count
  br i1 %more, label %body, label %done
body:
  %last_at = getelementptr i64, ptr %phases, i64 %phase
  %last = load i64, ptr %last_at
  call void %how(ptr %program, ptr %arrays, i64 %first, i64 %last, ptr %own_room, ptr %common_room)
  %next = add i64 %phase, 1
  br label %walk
done:
  call void @trim(ptr %own, i64 %limit)
  call void @trim(ptr %common, i64 %limit)
  %status = zext i1 %failed to i32
  ret i32 %status
}

; Run a program without the GIL. A caller that finds the pool busy, or wants no helper, does all by itself.
define i32 @run_free(ptr %program, ptr %arrays) {
entry:
  %own = alloca %memory
  %common = alloca %memory
  store %memory zeroinitializer, ptr %own
  store %memory zeroinitializer, ptr %common
  %threads_at = getelementptr %program, ptr %program, i32 0, i32 1
  %threads = load i64, ptr %threads_at
  %helped = icmp sgt i64 %threads, 1
  br i1 %helped, label %try, label %alone
try:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %together, label %alone
together:
  %status = call i32 @run_phases(ptr %program, ptr %arrays, ptr @caller_memory, ptr @common_memory,
                                 ptr @share, i64 <keep>)
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret i32 %status
alone:
  %own_status = call i32 @run_phases(ptr %program, ptr %arrays, ptr %own, ptr %common, ptr @run_parts, i64 0)
  ret i32 %own_status
}

; Run a program, which the caller keeps alive, on arrays: the inputs, outputs and constants. The GIL is held.
; Kernels get the addresses of the data. Had workers to read the array objects, whose references Python counts
; before and after, hundreds of cache lines would travel between the cores.
; Returns 0, or 1 when there is no memory.
define i32 @launch(ptr %program, ptr %list) {
entry:
  %operands_at = getelementptr %program, ptr %program, i32 0, i32 5
  %count_at = getelementptr %program, ptr %program, i32 0, i32 6
  %operands = load ptr, ptr %operands_at
  %count = load i64, ptr %count_at
  %arrays = alloca ptr, i64 %count
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %ready
body:
  %place_at = getelementptr i64, ptr %operands, i64 %i
  %place = load i64, ptr %place_at
  %array_at = getelementptr ptr, ptr %list, i64 %place
  %array = load ptr, ptr %array_at
  %data_at = getelementptr i8, ptr %array, i64 <data>
  %data = load ptr, ptr %data_at
  %target = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %data, ptr %target
  %next = add i64 %i, 1
  br label %walk
ready:
  %threads_at = getelementptr %program, ptr %program, i32 0, i32 1
  %threads = load i64, ptr %threads_at
  %keeps = icmp eq i64 %threads, 0
  br i1 %keeps, label %kept, label %free
kept:
  %status = call i32 @run_phases(ptr %program, ptr %arrays, ptr @kept_memory, ptr @kept_common,
                                 ptr @run_parts, i64 <keep>)
  ret i32 %status
free:
  %state = call ptr @PyEval_SaveThread()
  %free_status = call i32 @run_free(ptr %program, ptr %arrays)
  call void @PyEval_RestoreThread(ptr %state)
  ret i32 %free_status
}

; Do the actions of the turns from `first` on, until `last`, or until `limit` nanoseconds are over. The GIL is not
; held; there is room for the addresses of the operands of any action at `addresses`.
; Returns the turn that comes next, or -1 when there is no memory.
define i64 @repeat(ptr %actions, i64 %count, i64 %phases, i64 %first, i64 %last, i64 %limit, ptr %addresses) {
entry:
  %start = call i64 @now()
  br label %turns
turns:
  %turn = phi i64 [ %first, %entry ], [ %turn_next, %ended ]
  %some = icmp slt i64 %turn, %last
  br i1 %some, label %begin, label %done
begin:
  %phase = srem i64 %turn, %phases
  %since = sub i64 %turn, %phase
  br label %walk
walk:
  %k = phi i64 [ 0, %begin ], [ %k_next, %acted ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %action, label %ended
action:
  %action_at = getelementptr %action, ptr %actions, i64 %k
  %function_at = getelementptr %action, ptr %action_at, i32 0, i32 1
  %plan_at = getelementptr %action, ptr %action_at, i32 0, i32 2
  %operands_at = getelementptr %action, ptr %action_at, i32 0, i32 3
  %every_at = getelementptr %action, ptr %action_at, i32 0, i32 4
  %steps_at = getelementptr %action, ptr %action_at, i32 0, i32 5
  %program = load ptr, ptr %action_at
  %operands = load i64, ptr %operands_at
  %every = load ptr, ptr %every_at
  %steps = load ptr, ptr %steps_at
  %skipped = mul i64 %phase, %operands
  %bases = getelementptr i64, ptr %every, i64 %skipped
  br label %fill
fill:
  %j = phi i64 [ 0, %action ], [ %j_next, %filled ]
  %left = icmp slt i64 %j, %operands
  br i1 %left, label %filled, label %call
filled:
  %base_at = getelementptr i64, ptr %bases, i64 %j
  %step_at = getelementptr i64, ptr %steps, i64 %j
  %base = load i64, ptr %base_at
  %step = load i64, ptr %step_at
  %moved = mul i64 %step, %since
  %address = add i64 %base, %moved
  %target = getelementptr i64, ptr %addresses, i64 %j
  store i64 %address, ptr %target
  %j_next = add i64 %j, 1
  br label %fill
call:
  %has_program = icmp ne ptr %program, null
  br i1 %has_program, label %kernel, label %other
kernel:
  %status = call i32 @run_free(ptr %program, ptr %addresses)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %no_memory, label %acted
other:
  %function = load ptr, ptr %function_at
  %plan = load ptr, ptr %plan_at
  call void %function(ptr %addresses, ptr %plan)
  br label %acted
acted:
  %k_next = add i64 %k, 1
  br label %walk
ended:
  %turn_next = add i64 %turn, 1
  %now = call i64 @now()
  %spent = sub i64 %now, %start
  %over = icmp sgt i64 %spent, %limit
  br i1 %over, label %out, label %turns
out:
  ret i64 %turn_next
done:
  ret i64 %turn
no_memory:
  ret i64 -1
}

; Copy an array: the plan has three lengths of outer axes, the bytes of a row, three strides of the target's
; outer axes and three of the source's. The operands are the source and the target.
define void @copy_rows(ptr %operands, ptr %plan) {
entry:
  %source = load ptr, ptr %operands
  %target_at = getelementptr ptr, ptr %operands, i64 1
  %target = load ptr, ptr %target_at
  %n1_at = getelementptr i64, ptr %plan, i64 1
  %n2_at = getelementptr i64, ptr %plan, i64 2
  %bytes_at = getelementptr i64, ptr %plan, i64 3
  %t0_at = getelementptr i64, ptr %plan, i64 4
  %t1_at = getelementptr i64, ptr %plan, i64 5
  %t2_at = getelementptr i64, ptr %plan, i64 6
  %s0_at = getelementptr i64, ptr %plan, i64 7
  %s1_at = getelementptr i64, ptr %plan, i64 8
  %s2_at = getelementptr i64, ptr %plan, i64 9
  %n0 = load i64, ptr %plan
  %n1 = load i64, ptr %n1_at
  %n2 = load i64, ptr %n2_at
  %bytes = load i64, ptr %bytes_at
  %t0 = load i64, ptr %t0_at
  %t1 = load i64, ptr %t1_at
  %t2 = load i64, ptr %t2_at
  %s0 = load i64, ptr %s0_at
  %s1 = load i64, ptr %s1_at
  %s2 = load i64, ptr %s2_at
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i_next, %outer_end ]
  %i_more = icmp slt i64 %i, %n0
  br i1 %i_more, label %outer_begin, label %done
outer_begin:
  %t_i = mul i64 %i, %t0
  %s_i = mul i64 %i, %s0
  br label %middle
middle:
  %j = phi i64 [ 0, %outer_begin ], [ %j_next, %middle_end ]
  %j_more = icmp slt i64 %j, %n1
  br i1 %j_more, label %middle_begin, label %outer_end
middle_begin:
  %t_j0 = mul i64 %j, %t1
  %s_j0 = mul i64 %j, %s1
  %t_j = add i64 %t_i, %t_j0
  %s_j = add i64 %s_i, %s_j0
  br label %inner
inner:
  %k = phi i64 [ 0, %middle_begin ], [ %k_next, %inner_body ]
  %k_more = icmp slt i64 %k, %n2
  br i1 %k_more, label %inner_body, label %middle_end
inner_body:
  %t_k0 = mul i64 %k, %t2
  %s_k0 = mul i64 %k, %s2
  %t_k = add i64 %t_j, %t_k0
  %s_k = add i64 %s_j, %s_k0
  %to = getelementptr i8, ptr %target, i64 %t_k
  %from = getelementptr i8, ptr %source, i64 %s_k
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  %k_next = add i64 %k, 1
  br label %inner
middle_end:
  %j_next = add i64 %j, 1
  br label %middle
outer_end:
  %i_next = add i64 %i, 1
  br label %outer
done:
  ret void
}

; Whether the `count` objects of `list` are arrays of the shapes and strides of `signature`.
define internal i1 @agree(ptr %list, i64 %count, ptr %signature, ptr %type) {
entry:
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %same ]
  %at = phi ptr [ %signature, %entry ], [ %behind, %same ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %object, label %yes
object:
  %array_at = getelementptr ptr, ptr %list, i64 %i
  %array = load ptr, ptr %array_at
  %type_at = getelementptr i8, ptr %array, i64 <type>
  %own_type = load ptr, ptr %type_at
  %is_array = icmp eq ptr %own_type, %type
  br i1 %is_array, label %axes, label %no
axes:
  %ndim_at = getelementptr i8, ptr %array, i64 <ndim>
  %shape_at = getelementptr i8, ptr %array, i64 <shape>
  %strides_at = getelementptr i8, ptr %array, i64 <strides>
  %ndim_word = load i32, ptr %ndim_at
  %ndim = sext i32 %ndim_word to i64
  %shape = load ptr, ptr %shape_at
  %strides = load ptr, ptr %strides_at
  %wanted_ndim = load i64, ptr %at
  %wanted_shape = getelementptr i64, ptr %at, i64 1
  %wanted_strides = getelementptr i64, ptr %wanted_shape, i64 %ndim
  %behind = getelementptr i64, ptr %wanted_strides, i64 %ndim
  %same_ndim = icmp eq i64 %ndim, %wanted_ndim
  br i1 %same_ndim, label %axis, label %no
axis:
  %a = phi i64 [ 0, %axes ], [ %next_a, %compare ]
  %left = icmp slt i64 %a, %ndim
  br i1 %left, label %compare, label %same
compare:
  %length_at = getelementptr i64, ptr %shape, i64 %a
  %stride_at = getelementptr i64, ptr %strides, i64 %a
  %wanted_length_at = getelementptr i64, ptr %wanted_shape, i64 %a
  %wanted_stride_at = getelementptr i64, ptr %wanted_strides, i64 %a
  %length = load i64, ptr %length_at
  %stride = load i64, ptr %stride_at
  %wanted_length = load i64, ptr %wanted_length_at
  %wanted_stride = load i64, ptr %wanted_stride_at
  %length_differs = xor i64 %length, %wanted_length
  %stride_differs = xor i64 %stride, %wanted_stride
  %differs = or i64 %length_differs, %stride_differs
  %equal = icmp eq i64 %differs, 0
  %next_a = add i64 %a, 1
  br i1 %equal, label %axis, label %no
same:
  %next = add i64 %i, 1
  br label %walk
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether a pair of hazards begins at the same address.
define internal i1 @endangered(ptr %list, ptr %pairs, i64 %count) {
entry:
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %no
body:
  %input_at = getelementptr [2 x i64], ptr %pairs, i64 %i
  %output_at = getelementptr i64, ptr %input_at, i64 1
  %input_place = load i64, ptr %input_at
  %output_place = load i64, ptr %output_at
  %input_array_at = getelementptr ptr, ptr %list, i64 %input_place
  %output_array_at = getelementptr ptr, ptr %list, i64 %output_place
  %input = load ptr, ptr %input_array_at
  %output = load ptr, ptr %output_array_at
  %input_data_at = getelementptr i8, ptr %input, i64 <data>
  %output_data_at = getelementptr i8, ptr %output, i64 <data>
  %input_data = load ptr, ptr %input_data_at
  %output_data = load ptr, ptr %output_data_at
  %same = icmp eq ptr %input_data, %output_data
  %next = add i64 %i, 1
  br i1 %same, label %yes, label %walk
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether as many threads are wanted as the program is for, and there are as many. Not so when an exception
; came instead of an answer: that of a signal must not be lost.
define internal i1 @suits(ptr %site, ptr %program) {
entry:
  %threads_at = getelementptr %program, ptr %program, i32 0, i32 1
  %threads = load i64, ptr %threads_at
  %keeps = icmp eq i64 %threads, 0
  br i1 %keeps, label %yes, label %ask
ask:
  %function_at = getelementptr %site, ptr %site, i32 0, i32 1
  %function = load ptr, ptr %function_at
  call void @Py_IncRef(ptr %function)
  %answer = call ptr @PyObject_CallNoArgs(ptr %function)
  call void @Py_DecRef(ptr %function)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %unknown, label %compare
compare:
  %wanted = call i64 @PyLong_AsLong(ptr %answer)
  call void @Py_DecRef(ptr %answer)
  %same = icmp eq i64 %wanted, %threads
  %workers = load i64, ptr @workers
  %hands = add i64 %workers, 1
  %enough = icmp sge i64 %hands, %threads
  %both = and i1 %same, %enough
  ret i1 %both
yes:
  ret i1 true
unknown:
  ret i1 false
}

; Run the first program that fits the list. Returns 0, 1 when there is no memory, or 2 when none fits.
define internal i32 @find(ptr %site, ptr %list, i64 %count) {
entry:
  %type_at = getelementptr %site, ptr %site, i32 0, i32 2
  %type = load ptr, ptr %type_at
  %recent_at = getelementptr %site, ptr %site, i32 0, i32 7
  %recent = load ptr, ptr %recent_at
  br label %walk
walk:
  %at = phi ptr [ %recent, %entry ], [ %following, %try ]
  %program = load ptr, ptr %at
  %following = getelementptr ptr, ptr %at, i64 1
  %none = icmp eq ptr %program, null
  br i1 %none, label %unfit, label %try
try:
  %signature_at = getelementptr %program, ptr %program, i32 0, i32 2
  %signature = load ptr, ptr %signature_at
  %agrees = call i1 @agree(ptr %list, i64 %count, ptr %signature, ptr %type)
  br i1 %agrees, label %check, label %walk
check:
  %pairs_at = getelementptr %program, ptr %program, i32 0, i32 3
  %pair_count_at = getelementptr %program, ptr %program, i32 0, i32 4
  %pairs = load ptr, ptr %pairs_at
  %pair_count = load i64, ptr %pair_count_at
  %endangered = call i1 @endangered(ptr %list, ptr %pairs, i64 %pair_count)
  br i1 %endangered, label %unfit, label %safe
safe:
  %owner_at = getelementptr %program, ptr %program, i32 0, i32 0
  %owner = load ptr, ptr %owner_at
  call void @Py_IncRef(ptr %owner)
  %suits = call i1 @suits(ptr %site, ptr %program)
  br i1 %suits, label %go, label %late
go:
  %status = call i32 @launch(ptr %program, ptr %list)
  br label %late
late:  ; from here on another thread may have changed the list of programs
  %result = phi i32 [ 2, %safe ], [ %status, %go ]
  call void @Py_DecRef(ptr %owner)
  ret i32 %result
unfit:
  ret i32 2
}

; The Python function of a launcher: run(*inputs, out=outputs). `self` is an array whose data is the site.
define ptr @run(ptr %self, ptr %args, i64 %given, ptr %names) {
entry:
  %site_at = getelementptr i8, ptr %self, i64 <data>
  %site = load ptr, ptr %site_at
  %slow = load ptr, ptr %site
  %inputs_at = getelementptr %site, ptr %site, i32 0, i32 3
  %outputs_at = getelementptr %site, ptr %site, i32 0, i32 4
  %inputs = load i64, ptr %inputs_at
  %outputs = load i64, ptr %outputs_at
  %all_given = icmp eq i64 %given, %inputs
  %named = icmp ne ptr %names, null
  %usual = and i1 %all_given, %named
  br i1 %usual, label %named_once, label %python
named_once:
  %names_size_at = getelementptr i8, ptr %names, i64 <size>
  %names_size = load i64, ptr %names_size_at
  %once = icmp eq i64 %names_size, 1
  br i1 %once, label %unpack, label %python
unpack:
  %out_at = getelementptr ptr, ptr %args, i64 %inputs
  %out = load ptr, ptr %out_at
  %type_at = getelementptr i8, ptr %out, i64 <type>
  %type = load ptr, ptr %type_at
  %is_tuple = icmp eq ptr %type, @PyTuple_Type
  br i1 %is_tuple, label %measure, label %python
measure:
  %size_at = getelementptr i8, ptr %out, i64 <size>
  %size = load i64, ptr %size_at
  %full = icmp eq i64 %size, %outputs
  br i1 %full, label %fill, label %python
fill:
  %constants_at = getelementptr %site, ptr %site, i32 0, i32 5
  %constant_count_at = getelementptr %site, ptr %site, i32 0, i32 6
  %constants = load ptr, ptr %constants_at
  %constant_count = load i64, ptr %constant_count_at
  %count = add i64 %inputs, %outputs
  %whole = add i64 %count, %constant_count
  %list = alloca ptr, i64 %whole
  %list_outputs = getelementptr ptr, ptr %list, i64 %inputs
  %list_constants = getelementptr ptr, ptr %list, i64 %count
  %items = getelementptr i8, ptr %out, i64 <items>
  %input_bytes = mul i64 %inputs, 8
  %output_bytes = mul i64 %outputs, 8
  %constant_bytes = mul i64 %constant_count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %list, ptr %args, i64 %input_bytes, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %list_outputs, ptr %items, i64 %output_bytes, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %list_constants, ptr %constants, i64 %constant_bytes, i1 false)
  %status = call i32 @find(ptr %site, ptr %list, i64 %count)
  %pending = call ptr @PyErr_Occurred()  ; instead of the number of threads, or by a kernel that called Python
  %raised = icmp ne ptr %pending, null
  br i1 %raised, label %raise, label %returned
raise:
  ret ptr null
returned:
  switch i32 %status, label %python [
    i32 0, label %none
    i32 1, label %memory
  ]
none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
memory:
  %error = call ptr @PyErr_NoMemory()
  ret ptr null
python:
  %answer = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %given, ptr %names)
  ret ptr %answer
}

; There are no workers, at the start and in a child process: forget them, and the job that they may have had.
define void @forget() {
  call void @llvm.memset.p0.i64(ptr @cores, i8 -1, i64 4096, i1 false)
  store i64 0, ptr @workers
  store i32 0, ptr @busy
  store i32 0, ptr @sleepers
  store i32 0, ptr @open
  store i32 0, ptr @active
  store i32 0, ptr @waiting
  store %memory zeroinitializer, ptr @caller_memory
  store %memory zeroinitializer, ptr @common_memory
  ret void
}

; Between `native.ll`, which calls a kernel by a plan, and code that Halide compiled: its buffers, its runtime.
;
; Of Halide's runtime a kernel needs memory and parallel loops, and nothing else.

%buffer = type { i64, ptr, ptr, i64, i64, ptr, ptr }  ; Halide's halide_buffer_t; the host is field 2
%argument = type { i64, %buffer }                     ; the place of the array; -1: none

%plan = type {
  ptr,  ; 0 the compiled function, which takes an array of pointers to its arguments
  i64,  ; 1 how many
  i64,  ; 2 whether there is work for several threads; else the caller keeps the GIL
  i64   ; 3 whether the outputs go past the caches
}       ; the arguments follow

; What `native.ll` runs; see there.
%program = type { ptr, i64, ptr, ptr, i64, ptr, i64, ptr, ptr, i64, ptr, i64, i64 }
%part = type { ptr, i64, ptr, [6 x i64], i64, i64 }
%loop = type { ptr, ptr, i32, ptr }  ; a parallel loop: the body, the context, the first number, the closure

@pool    = global ptr null  ; the function of `native.ll` that runs a program
@ask     = global ptr null  ; the Python function that tells how many threads are wanted, and sees to them
@threads = global i64 1
@plain   = global i64 1     ; 0 while kernels may store past the caches; another call's outputs are right as well
@inside  = internal global i32 0, align 64  ; whether a parallel loop has the threads: one within it is serial

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare i64 @PyLong_AsLong(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyErr_NoMemory()
declare void @llvm.x86.sse.sfence()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define ptr @halide_malloc(ptr %context, i64 %size) {
  %more = add i64 %size, 255
  %whole = and i64 %more, -128
  %memory = call ptr @aligned_alloc(i64 128, i64 %whole)
  ret ptr %memory
}

define void @halide_free(ptr %context, ptr %memory) {
  call void @free(ptr %memory)
  ret void
}

; Some numbers of a parallel loop: a kernel for `native.ll`.
define i64 @some(ptr %arrays, ptr %loop, ptr %span) {
entry:
  %body = load ptr, ptr %loop
  %context_at = getelementptr %loop, ptr %loop, i32 0, i32 1
  %base_at = getelementptr %loop, ptr %loop, i32 0, i32 2
  %closure_at = getelementptr %loop, ptr %loop, i32 0, i32 3
  %context = load ptr, ptr %context_at
  %base = load i32, ptr %base_at
  %closure = load ptr, ptr %closure_at
  %first = load i64, ptr %span
  %last_at = getelementptr i64, ptr %span, i64 1
  %last = load i64, ptr %last_at
  br label %walk
walk:
  %i = phi i64 [ %first, %entry ], [ %next, %step ]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %step, label %done
step:
  %narrow = trunc i64 %i to i32
  %number = add i32 %base, %narrow
  call i32 %body(ptr %context, i32 %number, ptr %closure)
  %next = add i64 %i, 1
  br label %walk
done:  ; who learns that this is done sees all of it
  call void @llvm.x86.sse.sfence()
  ret i64 0
}

define i32 @halide_do_par_for(ptr %context, ptr %body, i32 %base, i32 %size, ptr %closure) {
entry:
  %one = icmp eq i32 %size, 1
  br i1 %one, label %single, label %several
single:
  %result = call i32 %body(ptr %context, i32 %base, ptr %closure)
  ret i32 %result
several:
  %loop = alloca %loop
  %span = alloca [8 x i64]
  %context_at = getelementptr %loop, ptr %loop, i32 0, i32 1
  %base_at = getelementptr %loop, ptr %loop, i32 0, i32 2
  %closure_at = getelementptr %loop, ptr %loop, i32 0, i32 3
  store ptr %body, ptr %loop
  store ptr %context, ptr %context_at
  store i32 %base, ptr %base_at
  store ptr %closure, ptr %closure_at
  %count = sext i32 %size to i64
  %threads = load i64, ptr @threads
  %pool = load ptr, ptr @pool
  %helped = icmp sgt i64 %threads, 1
  %positive = icmp sgt i32 %size, 0
  %wanted = and i1 %helped, %positive
  br i1 %wanted, label %try, label %alone
alone:
  %end_at = getelementptr i64, ptr %span, i64 1
  store i64 0, ptr %span
  store i64 %count, ptr %end_at
  call i64 @some(ptr null, ptr %loop, ptr %span)
  ret i32 0
try:
  %pair = cmpxchg ptr @inside, i32 0, i32 1 seq_cst seq_cst
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %share, label %alone
share:
  call void @shared(ptr %pool, ptr %loop, i64 %count, i64 %threads)
  store atomic i32 0, ptr @inside seq_cst, align 4
  ret i32 0
}

; A parallel loop as a program of at most 16 parts for each thread.
define internal void @shared(ptr %pool, ptr %loop, i64 %count, i64 %threads) {
entry:
  %most = mul i64 %threads, 16
  %few = icmp slt i64 %count, %most
  %parts = select i1 %few, i64 %count, i64 %most
  %phase = alloca i64
  %program = alloca %program
  %list = alloca %part, i64 %parts
  %claims = alloca i32, i64 %parts
  %claim_bytes = mul i64 %parts, 4
  %part_bytes = mul i64 %parts, 88
  call void @llvm.memset.p0.i64(ptr %claims, i8 0, i64 %claim_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %list, i8 0, i64 %part_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %program, i8 0, i64 104, i1 false)
  store i64 %parts, ptr %phase
  %threads_at = getelementptr %program, ptr %program, i32 0, i32 1
  %parts_at = getelementptr %program, ptr %program, i32 0, i32 7
  %phases_at = getelementptr %program, ptr %program, i32 0, i32 8
  %phase_count_at = getelementptr %program, ptr %program, i32 0, i32 9
  %claims_at = getelementptr %program, ptr %program, i32 0, i32 10
  %own_at = getelementptr %program, ptr %program, i32 0, i32 11
  %common_at = getelementptr %program, ptr %program, i32 0, i32 12
  store i64 %threads, ptr %threads_at
  store ptr %list, ptr %parts_at
  store ptr %phase, ptr %phases_at
  store i64 1, ptr %phase_count_at
  store ptr %claims, ptr %claims_at
  store i64 64, ptr %own_at
  store i64 64, ptr %common_at
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %fill ]
  %more = icmp slt i64 %i, %parts
  br i1 %more, label %fill, label %go
fill:
  %next = add i64 %i, 1
  %from_product = mul i64 %i, %count
  %to_product = mul i64 %next, %count
  %from = udiv i64 %from_product, %parts
  %to = udiv i64 %to_product, %parts
  %part = getelementptr %part, ptr %list, i64 %i
  %plan_at = getelementptr %part, ptr %part, i32 0, i32 2
  %from_at = getelementptr %part, ptr %part, i32 0, i32 3, i64 0
  %to_at = getelementptr %part, ptr %part, i32 0, i32 3, i64 1
  store ptr @some, ptr %part
  store ptr %loop, ptr %plan_at
  store i64 %from, ptr %from_at
  store i64 %to, ptr %to_at
  br label %walk
go:
  call i32 %pool(ptr %program, ptr null)
  ret void
}

; How many threads are wanted. The GIL is held. One, when an exception comes instead of an answer, as that of a
; signal does: the kernel is done first, then the function that was called by Python raises it.
define internal i64 @wanted() {
entry:
  %pending = call ptr @PyErr_Occurred()
  %raised = icmp ne ptr %pending, null
  br i1 %raised, label %unknown, label %ask
ask:
  %function = load ptr, ptr @ask
  %answer = call ptr @PyObject_CallNoArgs(ptr %function)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %unknown, label %known
known:
  %number = call i64 @PyLong_AsLong(ptr %answer)
  call void @Py_DecRef(ptr %answer)
  ret i64 %number
unknown:
  ret i64 1
}

; Buffers of the arrays, and their addresses, for one call by a plan.
define internal void @fill(ptr %arrays, ptr %plan, i64 %count, ptr %buffers, ptr %pointers) {
entry:
  %arguments = getelementptr %plan, ptr %plan, i64 1
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %ready ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %copy, label %done
copy:
  %argument = getelementptr %argument, ptr %arguments, i64 %i
  %template = getelementptr %argument, ptr %argument, i32 0, i32 1
  %buffer = getelementptr %buffer, ptr %buffers, i64 %i
  %pointer = getelementptr ptr, ptr %pointers, i64 %i
  %value = load %buffer, ptr %template
  store %buffer %value, ptr %buffer
  store ptr %buffer, ptr %pointer
  %place = load i64, ptr %argument
  %next = add i64 %i, 1
  %empty = icmp slt i64 %place, 0
  br i1 %empty, label %ready, label %host
host:
  %data_at = getelementptr ptr, ptr %arrays, i64 %place
  %data = load ptr, ptr %data_at
  %host_at = getelementptr %buffer, ptr %buffer, i32 0, i32 2
  store ptr %data, ptr %host_at
  br label %ready
ready:
  br label %walk
done:
  ret void
}

; A kernel that shares the threads with others: it runs on one. The GIL is not held.
define i64 @together(ptr %arrays, ptr %plan, ptr %span) {
entry:
  %count_at = getelementptr %plan, ptr %plan, i32 0, i32 1
  %function = load ptr, ptr %plan
  %count = load i64, ptr %count_at
  %buffers = alloca %buffer, i64 %count
  %pointers = alloca ptr, i64 %count
  call void @fill(ptr %arrays, ptr %plan, i64 %count, ptr %buffers, ptr %pointers)
  call i32 %function(ptr %pointers)
  ret i64 0
}

; The kernel that a plan names: call the compiled function with buffers of the arrays. The GIL is held.
define i64 @call(ptr %arrays, ptr %plan, ptr %span) {
entry:
  %count_at = getelementptr %plan, ptr %plan, i32 0, i32 1
  %large_at = getelementptr %plan, ptr %plan, i32 0, i32 2
  %past_at = getelementptr %plan, ptr %plan, i32 0, i32 3
  %function = load ptr, ptr %plan
  %count = load i64, ptr %count_at
  %large_word = load i64, ptr %large_at
  %past_word = load i64, ptr %past_at
  %buffers = alloca %buffer, i64 %count
  %pointers = alloca ptr, i64 %count
  call void @fill(ptr %arrays, ptr %plan, i64 %count, ptr %buffers, ptr %pointers)
  %past = icmp ne i64 %past_word, 0
  br i1 %past, label %past_caches, label %choose
past_caches:
  store atomic i64 0, ptr @plain monotonic, align 8
  br label %choose
choose:
  %large = icmp ne i64 %large_word, 0
  br i1 %large, label %free, label %kept
kept:
  store i64 1, ptr @threads
  %kept_status = call i32 %function(ptr %pointers)
  br label %called
free:
  %threads = call i64 @wanted()
  store i64 %threads, ptr @threads
  %state = call ptr @PyEval_SaveThread()
  %free_status = call i32 %function(ptr %pointers)
  call void @PyEval_RestoreThread(ptr %state)
  br label %called
called:  ; another call may have had this one store past the caches
  %status = phi i32 [ %kept_status, %kept ], [ %free_status, %free ]
  call void @llvm.x86.sse.sfence()
  br i1 %past, label %back, label %judge
back:
  store atomic i64 1, ptr @plain monotonic, align 8
  br label %judge
judge:  ; Halide has an error for nothing else here than for memory that it did not get
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %memory, label %done
memory:
  call ptr @PyErr_NoMemory()
  br label %done
done:
  ret i64 0
}

; Each of Halide's errors, whatever its arguments.
define i32 @failed() {
  ret i32 -1
}

; The function of a plan that has nothing to do.
define i32 @nothing(ptr %arguments) {
  ret i32 0
}

; In a child process no loop is running.
define void @forget() {
  store i32 0, ptr @inside
  store i64 1, ptr @plain
  ret void
}

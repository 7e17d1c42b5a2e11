; What kernels call to move memory: copies side by side, tiles, stores past the caches, and prefetches. Addresses
; are words. `native.py` writes the functions with <bits> in their names once for each size of an element.

declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Have the cache lines of `bytes` from `address` on on their way when they are read.
define void @mgb_ask(i64 %address, i64 %bytes) {
entry:
  br label %walk
walk:
  %offset = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %offset, %bytes
  br i1 %more, label %body, label %done
body:
  %place = add i64 %address, %offset
  %pointer = inttoptr i64 %place to ptr
  call void @llvm.prefetch.p0(ptr %pointer, i32 0, i32 3, i32 1)
  %next = add i64 %offset, 64
  br label %walk
done:
  ret void
}

; Copy `bytes` past the caches: whole lines of the target by non-temporal stores.
define void @mgb_flush(i64 %target, i64 %source, i64 %bytes) {
entry:
  %negative = sub i64 0, %target
  %before = and i64 %negative, 63
  %short = icmp ult i64 %bytes, %before
  %head = select i1 %short, i64 %bytes, i64 %before
  %rest = sub i64 %bytes, %head
  %over = and i64 %rest, 63
  %tail = sub i64 %bytes, %over
  %target_at = inttoptr i64 %target to ptr
  %source_at = inttoptr i64 %source to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %target_at, ptr %source_at, i64 %head, i1 false)
  br label %walk
walk:
  %place = phi i64 [ %head, %entry ], [ %next, %body ]
  %more = icmp slt i64 %place, %tail
  br i1 %more, label %body, label %end
body:
  %from = getelementptr i8, ptr %source_at, i64 %place
  %to = getelementptr i8, ptr %target_at, i64 %place
  %line = load <16 x i32>, ptr %from, align 1
  store <16 x i32> %line, ptr %to, align 64, !nontemporal !0
  %next = add i64 %place, 64
  br label %walk
end:
  %left = getelementptr i8, ptr %source_at, i64 %tail
  %open = getelementptr i8, ptr %target_at, i64 %tail
  call void @llvm.memcpy.p0.p0.i64(ptr %open, ptr %left, i64 %over, i1 false)
  ret void
}

; Copy `count` elements that lie `step` bytes apart from `address` on side by side to `buffer`: by fours, then the
; rest.
define void @mgb_gather_<bits>(i64 %buffer, i64 %address, i64 %step, i64 %count) {
entry:
  %to = inttoptr i64 %buffer to ptr
  %four = shl i64 %step, 2
  %fours = and i64 %count, -4
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %place = phi i64 [ %address, %entry ], [ %after, %body ]
  %more = icmp slt i64 %i, %fours
  br i1 %more, label %body, label %rest
body:
  %place1 = add i64 %place, %step
  %place2 = add i64 %place1, %step
  %place3 = add i64 %place2, %step
  %from0 = inttoptr i64 %place to ptr
  %from1 = inttoptr i64 %place1 to ptr
  %from2 = inttoptr i64 %place2 to ptr
  %from3 = inttoptr i64 %place3 to ptr
  %element0 = load i<bits>, ptr %from0
  %element1 = load i<bits>, ptr %from1
  %element2 = load i<bits>, ptr %from2
  %element3 = load i<bits>, ptr %from3
  %to0 = getelementptr i<bits>, ptr %to, i64 %i
  %to1 = getelementptr i<bits>, ptr %to0, i64 1
  %to2 = getelementptr i<bits>, ptr %to0, i64 2
  %to3 = getelementptr i<bits>, ptr %to0, i64 3
  store i<bits> %element0, ptr %to0
  store i<bits> %element1, ptr %to1
  store i<bits> %element2, ptr %to2
  store i<bits> %element3, ptr %to3
  %next = add i64 %i, 4
  %after = add i64 %place, %four
  br label %walk
rest:
  %j = phi i64 [ %i, %walk ], [ %j_next, %one ]
  %at = phi i64 [ %place, %walk ], [ %at_next, %one ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %one, label %done
one:
  %from = inttoptr i64 %at to ptr
  %element = load i<bits>, ptr %from
  %target = getelementptr i<bits>, ptr %to, i64 %j
  store i<bits> %element, ptr %target
  %j_next = add i64 %j, 1
  %at_next = add i64 %at, %step
  br label %rest
done:
  ret void
}

; The reverse: copy `count` elements of `buffer` to `address` and on, `step` bytes apart.
define void @mgb_scatter_<bits>(i64 %address, i64 %step, i64 %buffer, i64 %count) {
entry:
  %side = inttoptr i64 %buffer to ptr
  %four = shl i64 %step, 2
  %fours = and i64 %count, -4
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %place = phi i64 [ %address, %entry ], [ %after, %body ]
  %more = icmp slt i64 %i, %fours
  br i1 %more, label %body, label %rest
body:
  %place1 = add i64 %place, %step
  %place2 = add i64 %place1, %step
  %place3 = add i64 %place2, %step
  %to0 = inttoptr i64 %place to ptr
  %to1 = inttoptr i64 %place1 to ptr
  %to2 = inttoptr i64 %place2 to ptr
  %to3 = inttoptr i64 %place3 to ptr
  %from0 = getelementptr i<bits>, ptr %side, i64 %i
  %from1 = getelementptr i<bits>, ptr %from0, i64 1
  %from2 = getelementptr i<bits>, ptr %from0, i64 2
  %from3 = getelementptr i<bits>, ptr %from0, i64 3
  %element0 = load i<bits>, ptr %from0
  %element1 = load i<bits>, ptr %from1
  %element2 = load i<bits>, ptr %from2
  %element3 = load i<bits>, ptr %from3
  store i<bits> %element0, ptr %to0
  store i<bits> %element1, ptr %to1
  store i<bits> %element2, ptr %to2
  store i<bits> %element3, ptr %to3
  %next = add i64 %i, 4
  %after = add i64 %place, %four
  br label %walk
rest:
  %j = phi i64 [ %i, %walk ], [ %j_next, %one ]
  %at = phi i64 [ %place, %walk ], [ %at_next, %one ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %one, label %done
one:
  %from = getelementptr i<bits>, ptr %side, i64 %j
  %element = load i<bits>, ptr %from
  %target = inttoptr i64 %at to ptr
  store i<bits> %element, ptr %target
  %j_next = add i64 %j, 1
  %at_next = add i64 %at, %step
  br label %rest
done:
  ret void
}

; Lay out `rows` rows of `count` elements in `buffer`, `pitch` elements apart. Elements are `step` bytes apart,
; rows `across`. Each turn of the outer loop reads a cache line, which was asked for <ahead> lines before, by fours
; and then the rest.
define void @mgb_tile_<bits>(i64 %buffer, i64 %address, i64 %step, i64 %count, i64 %across, i64 %rows, i64 %pitch) {
entry:
  %to = inttoptr i64 %buffer to ptr
  %further = mul i64 %step, <ahead>
  %four = shl i64 %across, 2
  %fours = and i64 %rows, -4
  %pitch4 = shl i64 %pitch, 2
  br label %walk
walk:
  %column = phi i64 [ 0, %entry ], [ %next, %turn ]
  %place = phi i64 [ %address, %entry ], [ %after, %turn ]
  %more = icmp slt i64 %column, %count
  br i1 %more, label %body, label %done
body:
  %later = add i64 %place, %further
  %pointer = inttoptr i64 %later to ptr
  call void @llvm.prefetch.p0(ptr %pointer, i32 0, i32 3, i32 1)
  br label %down
down:
  %row = phi i64 [ 0, %body ], [ %below, %group ]
  %at = phi i64 [ %place, %body ], [ %passed, %group ]
  %target = phi i64 [ %column, %body ], [ %target_next, %group ]
  %any = icmp slt i64 %row, %fours
  br i1 %any, label %group, label %rest
group:
  %at1 = add i64 %at, %across
  %at2 = add i64 %at1, %across
  %at3 = add i64 %at2, %across
  %from0 = inttoptr i64 %at to ptr
  %from1 = inttoptr i64 %at1 to ptr
  %from2 = inttoptr i64 %at2 to ptr
  %from3 = inttoptr i64 %at3 to ptr
  %value0 = load i<bits>, ptr %from0
  %value1 = load i<bits>, ptr %from1
  %value2 = load i<bits>, ptr %from2
  %value3 = load i<bits>, ptr %from3
  %to0 = getelementptr i<bits>, ptr %to, i64 %target
  %to1 = getelementptr i<bits>, ptr %to0, i64 %pitch
  %to2 = getelementptr i<bits>, ptr %to1, i64 %pitch
  %to3 = getelementptr i<bits>, ptr %to2, i64 %pitch
  store i<bits> %value0, ptr %to0
  store i<bits> %value1, ptr %to1
  store i<bits> %value2, ptr %to2
  store i<bits> %value3, ptr %to3
  %below = add i64 %row, 4
  %passed = add i64 %at, %four
  %target_next = add i64 %target, %pitch4
  br label %down
rest:
  %single = phi i64 [ %row, %down ], [ %single_next, %one ]
  %single_at = phi i64 [ %at, %down ], [ %single_passed, %one ]
  %single_target = phi i64 [ %target, %down ], [ %single_target_next, %one ]
  %left = icmp slt i64 %single, %rows
  br i1 %left, label %one, label %turn
one:
  %from = inttoptr i64 %single_at to ptr
  %value = load i<bits>, ptr %from
  %single_to = getelementptr i<bits>, ptr %to, i64 %single_target
  store i<bits> %value, ptr %single_to
  %single_next = add i64 %single, 1
  %single_passed = add i64 %single_at, %across
  %single_target_next = add i64 %single_target, %pitch
  br label %rest
turn:
  %next = add i64 %column, 1
  %after = add i64 %place, %step
  br label %walk
done:
  ret void
}

!0 = !{i32 1}

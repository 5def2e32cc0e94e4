NAME        
ROWS
 N  Obj     
 L  r0      
 E  r1      
 E  r2      
 G  r3      
 L  r4      
 G  r5      
 L  r6      
 L  r7      
 L  r8      
 L  r9      
 L  r10     
 L  r11     
 L  r12     
 L  r13     
 L  r14     
 L  r15     
 L  r16     
 L  r17     
 L  r18     
 L  r19     
 L  r20     
 L  r21     
 L  r22     
 L  r23     
 L  r24     
 L  r25     
 L  r26     
 L  r27     
 L  r28     
 L  r29     
 L  r30     
 L  r31     
 L  r32     
 L  r33     
 L  r34     
COLUMNS
    MARK0000  'MARKER'                 'INTORG'
    c0        r1        1
    c0        r9        1
    c0        r10       1
    c0        r11       1
    c0        r12       1
    c0        r13       1
    c0        r16       1
    c0        r17       1
    c0        r18       1
    c0        r19       1
    c0        r20       1
    c0        r21       1
    c0        r24       1
    c0        r25       1
    c0        r26       1
    c0        r27       1
    c0        r28       1
    c0        r29       1
    c1        Obj       -100
    c1        r1        -2
    c1        r34       1000
    c2        r2        1
    c2        r9        1
    c2        r10       1
    c2        r11       1
    c2        r12       1
    c2        r13       1
    c2        r16       1
    c2        r17       1
    c2        r18       1
    c2        r19       1
    c2        r20       1
    c2        r21       1
    c2        r24       1
    c2        r25       1
    c2        r26       1
    c2        r27       1
    c2        r28       1
    c2        r29       1
    c3        Obj       -50
    c3        r2        -1
    c3        r34       500
    c4        Obj       -400
    c4        r3        1
    c4        r4        1
    c4        r7        1
    c4        r14       1
    c4        r15       1
    c4        r32       1
    c4        r33       1000
    c5        r0        1
    c5        r3        -2
    c5        r4        -4
    c6        Obj       -400
    c6        r5        1
    c6        r6        1
    c6        r8        1
    c6        r16       2
    c6        r17       2
    c6        r18       3
    c6        r19       3
    c6        r20       2
    c6        r21       2
    c6        r22       1
    c6        r23       1
    c6        r24       2
    c6        r25       2
    c6        r26       3
    c6        r27       3
    c6        r28       2
    c6        r29       2
    c6        r30       1
    c6        r31       1
    c6        r32       1
    c6        r33       1000
    c7        r0        1
    c7        r5        -2
    c7        r6        -4
    c8        r8        1
    c8        r9        -2
    c8        r10       -2
    c8        r11       -3
    c8        r12       -2
    c8        r13       -2
    c9        r33       -1
    c9        r34       1
    MARK0001  'MARKER'                 'INTEND'
RHS
    RHS_V     r0        1
    RHS_V     r7        6
    RHS_V     r8        2
    RHS_V     r14       6
    RHS_V     r15       6
    RHS_V     r16       4
    RHS_V     r17       4
    RHS_V     r18       7
    RHS_V     r19       6
    RHS_V     r20       5
    RHS_V     r21       4
    RHS_V     r22       3
    RHS_V     r23       2
    RHS_V     r24       4
    RHS_V     r25       4
    RHS_V     r26       7
    RHS_V     r27       6
    RHS_V     r28       5
    RHS_V     r29       4
    RHS_V     r30       3
    RHS_V     r31       2
    RHS_V     r32       4
    RHS_V     r33       3000
    RHS_V     r34       1000
BOUNDS
 UI BOUND     c0        2
 BV BOUND     c1      
 BV BOUND     c2      
 BV BOUND     c3      
 UI BOUND     c4        4
 BV BOUND     c5      
 UI BOUND     c6        2
 BV BOUND     c7      
 UI BOUND     c8        2
 UI BOUND     c9        7000
ENDATA

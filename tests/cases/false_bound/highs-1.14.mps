NAME        
ROWS
 N  Obj     
 G  r0      
 L  r1      
 E  r2      
 E  r3      
 E  r4      
 E  r5      
 E  r6      
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
 L  r35     
 L  r36     
 L  r37     
 L  r38     
 L  r39     
 L  r40     
COLUMNS
    MARK0000  'MARKER'                 'INTORG'
    c0        Obj       -20
    c0        r0        1
    c0        r1        1
    c0        r9        200
    c0        r10       1
    c0        r18       1000
    c0        r39       200
    c1        Obj       -20
    c1        r0        1
    c1        r1        1
    c1        r16       200
    c1        r17       1
    c1        r27       1000
    c1        r28       8
    c1        r29       7
    c1        r30       6
    c1        r31       5
    c1        r32       4
    c1        r33       3
    c1        r34       2
    c1        r35       1
    c1        r39       200
    c2        r0        -1
    c2        r1        -4
    c3        r2        1
    c3        r9        1
    c3        r18       1000
    c3        r19       3000
    c3        r20       2
    c3        r21       2
    c3        r22       2
    c3        r23       1
    c3        r24       1
    c3        r25       1
    c4        Obj       -10
    c4        r2        -1
    c4        r36       1
    c4        r37       1
    c4        r40       1
    c5        r3        1
    c6        r3        1
    c7        Obj       -60
    c7        r3        -4
    c8        r4        1
    c8        r9        999
    c8        r10       4
    c8        r11       4
    c8        r12       3
    c8        r13       2
    c8        r14       1
    c8        r15       1
    c8        r18       2500
    c8        r19       1000
    c8        r26       1
    c9        Obj       -1
    c9        r4        -1
    c9        r38       999
    c9        r40       999
    c10       r5        1
    c10       r18       2500
    c10       r19       1000
    c11       Obj       -1
    c11       r5        -4
    c12       r6        1
    c12       r18       4000
    c12       r19       1000
    c13       Obj       -1
    c13       r6        -2
    c14       r7        1
    c14       r9        -1000
    c14       r10       -5
    c14       r11       -4
    c14       r12       -3
    c14       r13       -2
    c14       r14       -1
    c14       r15       -1
    c15       r8        1
    c15       r16       -1000
    c15       r17       -5
    c16       r37       -1
    c16       r38       1
    c17       r38       -1
    c17       r39       1
    MARK0001  'MARKER'                 'INTEND'
RHS
    RHS_V     r7        2
    RHS_V     r8        1
    RHS_V     r16       700
    RHS_V     r17       3
    RHS_V     r18       64000
    RHS_V     r19       9999
    RHS_V     r20       8
    RHS_V     r21       7
    RHS_V     r22       6
    RHS_V     r23       5
    RHS_V     r24       4
    RHS_V     r25       3
    RHS_V     r26       5
    RHS_V     r27       1000
    RHS_V     r28       8
    RHS_V     r29       7
    RHS_V     r30       6
    RHS_V     r31       5
    RHS_V     r32       4
    RHS_V     r33       3
    RHS_V     r34       2
    RHS_V     r35       1
    RHS_V     r36       3700
    RHS_V     r37       2700
    RHS_V     r38       5000
    RHS_V     r39       6000
    RHS_V     r40       4700
BOUNDS
 UI BOUND     c0        8
 BV BOUND     c1      
 UI BOUND     c2        2
 BV BOUND     c3      
 BV BOUND     c4      
 UI BOUND     c5        4
 UI BOUND     c6        4
 BV BOUND     c7      
 BV BOUND     c8      
 BV BOUND     c9      
 UI BOUND     c10       4
 BV BOUND     c11     
 UI BOUND     c12       2
 BV BOUND     c13     
 UI BOUND     c14       2
 UI BOUND     c15       2
 UI BOUND     c16       21200
 UI BOUND     c17       21200
ENDATA

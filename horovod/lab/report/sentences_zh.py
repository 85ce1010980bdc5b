"""简体中文：对数据的表述。Keys and placeholders are the same as in sentences_en.py."""

SENTENCES = {
    # 摘要
    "scope": "共 {runs}：训练脚本 {script}，数据集 {dataset}，每次训练 {epochs}，{seeds}。",
    "only_row": "只有一种配置 {row}，训练用时 {time}。",
    "fastest": "平均用时最短的是 {row}：训练用时 {time}，速度是串行训练的 {speed_up} 倍。",
    "fastest_is_serial": "平均用时最短的是串行训练（{time}）；其次是 {row}，用时 {other}。",
    "fastest_without_serial": "平均用时最短的是 {row}：训练用时 {time}。",
    "fastest_by_chance": "它与第二名 {row} 的先后可能出于偶然。",
    "times_of_unequal_work": "这些用时对应的样本数不同，不能直接比较。",
    "accuracy_of_one": "其测试集准确率为 {high}。",
    "accuracy_equal": "各配置的测试集准确率相同，均为 {high}。",
    "accuracy_same": (
        "从不同种子之间的波动来看，各配置的测试集准确率没有区别：最低 {low}（{worst}），最高 {high}（{best}"
        "）。"
    ),
    "accuracy_differs": (
        "准确率最高的是 {best}，为 {high}；最低的是 {worst}，为 {low}；差距超过了不同种子之间的波动。"
    ),
    "accuracy_one_seed": (
        "准确率最高的是 {best}，为 {high}；最低的是 {worst}，为 {low}；只有一个种子，无法判断这一差距是否出"
        "于偶然。"
    ),
    "bytes_saved": "{row} 发送的字节数是不压缩时的 1/{ratio}。",
    "compression_paid": (
        "压缩在 {cases} 组对比中的 {number} 组带来了收益：{row} 比不压缩的同一配置少用 {share} 的时间（"
        "{interval}），原因是各进程等待的时间变短了。"
    ),
    "compression_unexplained": (
        "{cases} 组对比中有 {number} 组压缩后用时更短（{row} 少用 {share}，{interval}），但等待时间的减少不"
        "足以解释，因此不算压缩的收益。"
    ),
    "compression_cost": (
        "{cases} 组对比中有 {number} 组压缩后用时更长：{row} 比不压缩的同一配置多用 {share} 的时间（"
        "{interval}）。"
    ),
    "compression_paid_nowhere": "没有一组对比中压缩带来收益。",
    "compression_undecided": "没有一组对比能说明压缩节省或增加了时间：各组差别都可能出于偶然。",
    "compression_one_seed": (
        "只有一个种子，无法判断压缩是否带来收益：时间上的差别可能出于偶然；可以用 --seeds 3 重做。"
    ),
    "compression_unlike": (
        "无法判断压缩是否带来收益：太多运行期间有其他程序占用处理器，而且占用的程度不一；可以用 "
        "--repeat-disturbed 重做这些运行。"
    ),
    "crowded": "最多有 {ranks} 个进程共用 {cores}，因此看上去属于并行训练的开销，有一部分其实是在等待核心。",
    # 警告
    "warn_datasets": "各次运行使用了不同的数据集（{values}），各行之间不可比较。",
    "warn_scripts": "各次并行运行使用了不同的脚本（{values}），各行之间不可比较。",
    "warn_arguments": "各次运行的脚本参数不同（{values}）。",
    "warn_epochs": "各次运行的轮数不同（{values}），训练时间与准确率不可比较。",
    "warn_seeds": "各行的随机种子不完全相同，可能缺少某些运行。",
    "warn_disturbed": (
        "{all} 次运行中有 {number} 次受到干扰：其他程序占用了超过 {limit} 的处理器时间，最多为 {most}。这些"
        "运行已作标记，其用时也反映了那些程序的影响。在同一命令后加上 --repeat-disturbed 可以重做这些运行。"
    ),
    "warn_examples": (
        "以下各行的进程没有分摊串行训练的步数：{rows}。若各进程的批量与串行训练相同，则这些行的加速比与扩展"
        "效率比较的是不同样本数所用的时间。"
    ),
    "warn_diverged": "以下运行的训练发散了：{runs}。其损失变为无穷大或非数值，图表中略去这些损失。",
    "warn_not_identical": "以下运行结束时，各进程的模型参数不一致：{runs}。这些结果不可信。",
    # 分析
    "speed_title": "加速比",
    "no_serial": "没有串行运行，无法计算加速比。请在 --np 中加入 1。",
    "steps_divided": (
        "一轮中，{row} 训练了 {steps} 步，而串行训练为 {serial_steps} 步：每个进程只训练自己那一份数"
        "据，所有进程合起来，一步用到的样本数是原来的 {ranks} 倍。"
    ),
    "steps_same": "一轮中，{row} 与串行训练的步数相同（{steps} 与 {serial_steps}）。",
    "steps_other": "一轮中，{row} 训练了 {steps} 步，串行训练为 {serial_steps} 步。",
    "unequal_examples": (
        "此时加速比所比较的是不同样本数所用的时间：若每个进程的批量不变，n 个进程的一步处理的样本数是原来的"
        " n 倍。"
    ),
    "per_example_fell": (
        "{row}：加速比为 {speed_up}，样本数是串行训练的 {examples} 倍，每个样本的用时降为 1/{factor}。"
    ),
    "per_example_rose": (
        "{row}：加速比为 {speed_up}，样本数是串行训练的 {examples} 倍，每个样本的用时增至 {factor} 倍。"
    ),
    "among_divided": "以下只涉及各进程分摊了步数的行。",
    "speed_best": (
        "理想情况下，加速比等于设备数。效率最高的是 {row}：{ranks} 个设备的加速比为 {speed_up}，扩展效率为 "
        "{efficiency}。"
    ),
    "speed_worst": "效率最低的是 {row}：{ranks} 个设备的加速比为 {speed_up}，扩展效率为 {efficiency}。",
    "slower_than_serial": "这比单个设备还慢。",
    "above_ideal": "这超过了理想值：串行训练可能受到了干扰，也可能是每个进程的数据恰好放得进缓存。",
    "near_ideal": "这已接近理想值。",
    "part_of_ideal": "这超过了理想值的一半。",
    "far_from_ideal": "这不到理想值的一半。",
    "limits_title": "瓶颈在哪里",
    "wait_share": "{row} 的一步用时 {step} 毫秒，其中 {wait} 毫秒（{share} %）在等待其他进程。",
    "compute_beside_serial": "其余 {compute} 毫秒是串行单步时间 {alone} 毫秒的 {factor} 倍。",
    "limit_none": "两者的额外开销都不到串行单步时间的十分之一。",
    "limit_slower": "因此，离理想值的差距主要来自计算变慢。",
    "busy_meanwhile": (
        "运行期间其他程序占用了 {share} 的处理器时间（串行训练期间为 {serial}）：这会使计算变慢，也会使各进"
        "程等待最慢的那一个。"
    ),
    "limit_waiting": "因此，离理想值的差距主要来自等待。",
    "limit_cores": "因此，离理想值的差距主要来自计算变慢：进程数多于核心数，只能轮流使用核心。",
    "limit_unknown": "因此，离理想值的差距主要来自计算变慢；这些进程共用多少个核心不得而知。",
    "limit_compute": (
        "因此，离理想值的差距主要来自计算变慢。每个进程都有自己的核心；它们共用的其他资源（内存、缓存、引擎"
        "自身的线程等）不在本实验的测量范围内。"
    ),
    "pay_title": "压缩是否划算",
    "less": "少用 {share}",
    "more": "多用 {share}",
    "interval": "区间：{low} 至 {high}",
    "pair": "{row}：{time} 对 {plain}（不压缩），{change} 的时间。",
    "pair_interval": "依据 {seeds}，{interval}。",
    "pair_left_out": "另有 {seeds} 未计入，因为期间其他程序在占用处理器。",
    "pair_disturbed": "这些运行都受到其他程序的干扰，因此区间的置信度取 {confidence}。",
    "pair_paid": "所省时间的 {explained} 可由等待减少解释：压缩带来了收益。",
    "pair_unexplained": "用时变短了，但等待减少只能解释其中的 {explained}：不算压缩的收益。",
    "pair_unexplained_bytes": "用时变短了，但发送的字节数并没有减少：不算压缩的收益。",
    "pair_unexplained_chance": "用时变短了，但等待时间的减少可能出于偶然：不算压缩的收益。",
    "pair_cost": "压缩增加了用时。",
    "pair_cost_coding": "压缩增加了用时，等待也变长了：很可能是编码与解码的开销超过了传输缩短所节省的时间。",
    "pair_undecided": "区间包含 0，因此差别可能出于偶然。",
    "pair_one_seed": "只有一个种子，差别可能出于偶然；可以用 --seeds 3 重做。",
    "pair_unlike": (
        "各次运行期间其他程序的忙碌程度不同，差别可能由此而来；可以用 --repeat-disturbed 重做这些运行。"
    ),
    "rule": (
        "区间由各种子的成对差值按 t 分布求得，其宽度使得 {confidence} 的此类报告中所有区间都包含真值。只有"
        "区间位于 0 以上，并且等待减少能解释至少一半的所省时间，才认为压缩带来了收益。"
    ),
    "sends_fewer": "发送的字节数为 1/{ratio}，每步等待 {wait} 对 {plain}。",
    "sends_alike": "发送的字节数大致相同，每步等待 {wait} 对 {plain}。",
    "sends_more": "发送的字节数是不压缩时的 {ratio} 倍，每步等待 {wait} 对 {plain}。",
    "between_places": (
        "同样的训练 {row}：每步 {first}（{here}）与 {second}（{there}），后者是前者的 {factor} 倍。"
    ),
    "learning_title": "准确率",
    "accuracy_change": "压缩对准确率影响最大的是 {row}：相差 {points} 个百分点。",
    "accuracy_unchanged": "压缩对准确率的影响均不到 0.01 个百分点。",
    "within_seeds": "其区间（{low} 至 {high}）包含 0，数据看不出压缩的影响。",
    "beyond_seeds": "其区间（{low} 至 {high}）不包含 0，很可能是压缩的影响。",
    "seeds_unknown": "只有一个种子，无法得知偶然因素的影响有多大；可以用 --seeds 3 重做。",
    "codec_loses": "对服从正态分布的数，{codec} 的一次量化损失 {share} 的能量。",
    "fewer_updates_lower": (
        "{row} 更新模型 {steps} 次，串行训练更新 {alone} 次，最终准确率低 {points} 个百分点：轮数不变时"
        "，步数更少、批量更大，可能会损失准确率。"
    ),
    "fewer_updates_equal": "{row} 更新模型 {steps} 次，串行训练更新 {alone} 次，最终准确率相同。",
    "fewer_updates_not_lower": (
        "{row} 更新模型 {steps} 次，串行训练更新 {alone} 次，最终准确率高 {points} 个百分点。"
    ),
    "fewer_updates_unclear": (
        "{row} 更新模型 {steps} 次，串行训练更新 {alone} 次，最终准确率相差 {points} 个百分点，可能出于偶然。"
    ),
    "same_model_title": "各进程的模型一致",
    "places_same": "运行位置没有影响训练结果：同样的训练在各个位置得到相同的校验和。",
    "places_apart": "不同位置的校验和并不完全一致：各处求和的划分方式可能不同。",
    "identical": "每次并行运行结束时，所有进程的模型参数逐比特相同。",
    "not_identical": "{runs} 中各进程的副本出现了偏差，准确率只代表 rank 0。",
}
